#include "strategy/worker_share.h"

#include <algorithm>

#include "cluster/visible_cpus.h"
#include "strategy/task_group.h"

namespace tandem::internal {
namespace {

// Without asking a name server.
bool same_host(const std::string& a, const std::string& b) {
  const auto is_loopback = [](const std::string& host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
  };
  return a == b || (is_loopback(a) && is_loopback(b));
}

}  // namespace

std::vector<Device> own_devices(const std::vector<std::string>& names) {
  keep_to_visible_cpus();
  if (!names.empty()) return resolve_devices(names);
  const std::vector<Device> devices = default_devices();
  return devices.front().type == DeviceType::kGpu ? devices : resolve_devices({"/cpu:0"});
}

int share_of_cores(const ResolvedCluster& resolved, std::size_t replicas) {
  const auto host_of = [&](const TaskId& task) {
    return parse_address(resolved.cluster.task_address(task), task.name()).host;
  };
  const std::string host = host_of(*resolved.task);
  const auto tasks = std::ranges::count_if(
      training_tasks(resolved.cluster), [&](const TaskId& task) { return same_host(host_of(task), host); });
  return std::max(1, usable_cores() / (static_cast<int>(replicas) * static_cast<int>(tasks)));
}

}  // namespace tandem::internal
