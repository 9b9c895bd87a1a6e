#include "strategy/one_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "cluster/environment.h"
#include "cluster/visible_cpus.h"

namespace tandem::internal {

std::vector<Device> devices_or_default(const std::vector<std::string>& names) {
  keep_to_visible_cpus();
  return names.empty() ? default_devices() : resolve_devices(names);
}

std::shared_ptr<CrossDeviceOps> default_cross_device_ops(const std::vector<Device>& devices) {
  const bool all_cpus =
      std::all_of(devices.begin(), devices.end(), [](const Device& d) { return d.type == DeviceType::kCpu; });
  return all_cpus ? shared_memory_all_reduce() : reduction_to_one_device();
}

void announce(const char* strategy, StrategyImpl& impl) {
  std::vector<std::string> names;
  for (const Device& device : impl.devices()) names.push_back(device.name());
  log_info("{}: {} replicas on {}, threads per replica {}, gradients meet by {}", strategy, names.size(),
           fmt::join(names, ", "), impl.threads_per_replica(), impl.cross_device_ops().name());
  if (tf_config_variable()) log_info("TF_CONFIG is set, but {} is for one machine: ignored", strategy);
}

}  // namespace tandem::internal
