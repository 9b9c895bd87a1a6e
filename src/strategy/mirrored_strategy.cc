#include "tandem/mirrored_strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "cluster/environment.h"
#include "strategy/strategy_impl.h"

namespace tandem {
namespace {

std::shared_ptr<internal::StrategyImpl> make_impl(const MirroredOptions& options) {
  auto impl = std::make_shared<internal::StrategyImpl>(internal::StrategySetup{
      .name = "mirrored",
      .devices = options.devices.empty() ? default_devices() : resolve_devices(options.devices),
      .threads_per_replica = options.threads_per_replica,
      .cross_device_ops = options.cross_device_ops ? options.cross_device_ops : shared_memory_all_reduce()});
  std::vector<std::string> names;
  for (const Device& device : impl->devices()) names.push_back(device.name());
  internal::log_info("MirroredStrategy: {} replicas on {}, threads per replica {}, gradients meet by {}", names.size(),
                     fmt::join(names, ", "), impl->threads_per_replica(), impl->cross_device_ops().name());
  if (internal::tf_config_variable()) {
    internal::log_info("TF_CONFIG is set, but MirroredStrategy is for one machine: ignored");
  }
  return impl;
}

}  // namespace

MirroredStrategy::MirroredStrategy(MirroredOptions options) : Strategy(make_impl(options)) {}

}  // namespace tandem
