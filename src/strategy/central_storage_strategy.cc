#include "tandem/central_storage_strategy.h"

#include "strategy/one_machine.h"

namespace tandem {
namespace {

std::shared_ptr<internal::StrategyImpl> make_impl(const CentralStorageOptions& options) {
  const std::vector<Device> devices = internal::devices_or_default(options.compute_devices);
  auto impl = std::make_shared<internal::StrategyImpl>(
      internal::StrategySetup{.name = "central_storage",
                              .devices = devices,
                              .threads_per_replica = options.threads_per_replica,
                              .cross_device_ops = internal::default_cross_device_ops(devices),
                              .placement = internal::Placement::kCentral});
  internal::announce("CentralStorageStrategy", *impl);
  return impl;
}

}  // namespace

CentralStorageStrategy::CentralStorageStrategy(CentralStorageOptions options)
    : Strategy(make_impl(options)) {}

}  // namespace tandem
