#include <fmt/format.h>

#include "cluster/text.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem {

std::optional<ResolvedCluster> FlagsClusterResolver::resolve() const {
  if (flags_.worker_hosts.empty()) return std::nullopt;
  const auto hosts = internal::split_list(flags_.worker_hosts);
  const auto count = static_cast<int>(hosts.size());
  for (int i = 0; i < count; ++i) {
    parse_address(hosts[static_cast<std::size_t>(i)], fmt::format("--worker_hosts, entry {},", i));
  }
  if (!flags_.task_type.empty() && flags_.task_type != "worker") {
    throw InvalidArgument(fmt::format(
        "--task_type is {}, but --worker_hosts has workers only: use --cluster_file or TF_CONFIG for "
        "other jobs, or write --task_type worker",
        internal::quote(flags_.task_type)));
  }
  const bool has_task = flags_.task_index || count == 1;
  if (!has_task && !flags_.task_may_be_missing) {
    throw InvalidArgument(
        fmt::format("--worker_hosts has {} workers, but --task_index is missing: say which one this is, as "
                    "in --task_index 0",
                    count));
  }
  const int index = flags_.task_index.value_or(0);
  if (index < 0 || index >= count) {
    throw InvalidArgument(fmt::format(
        "--task_index is {}: --worker_hosts has {} entries, so expected 0 to {}", index, count, count - 1));
  }
  ResolvedCluster resolved;
  resolved.cluster = ClusterSpec({{"worker", JobTasks(hosts)}});
  if (has_task) resolved.task = TaskId{"worker", index};
  resolved.source = name();
  try {
    resolved.check();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("--worker_hosts: {}", error.what()));
  }
  return resolved;
}

}  // namespace tandem
