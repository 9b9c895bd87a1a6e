#include "tandem/mirrored_strategy.h"

#include "strategy/one_machine.h"

namespace tandem {
namespace {

std::shared_ptr<internal::StrategyImpl> make_impl(const MirroredOptions& options) {
  const std::vector<Device> devices = internal::devices_or_default(options.devices);
  auto impl = std::make_shared<internal::StrategyImpl>(internal::StrategySetup{
      .name = "mirrored",
      .devices = devices,
      .threads_per_replica = options.threads_per_replica,
      .cross_device_ops =
          options.cross_device_ops ? options.cross_device_ops : internal::default_cross_device_ops(devices)});
  internal::announce("MirroredStrategy", *impl);
  return impl;
}

}  // namespace

MirroredStrategy::MirroredStrategy(MirroredOptions options) : Strategy(make_impl(options)) {}

}  // namespace tandem
