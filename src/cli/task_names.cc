#include "cli/task_names.h"

#include <fmt/format.h>

#include "cluster/text.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem::internal {

TaskId parse_task(const std::string& text) {
  const auto colon = text.rfind(':');
  const auto index = colon == std::string::npos ? std::nullopt : parse_int(text.substr(colon + 1));
  if (!index) {
    throw InvalidArgument(
        fmt::format("--task is {}: expected a type and an index, such as worker:1", quote(text)));
  }
  return {text.substr(0, colon), *index};
}

bool is_chief(const ClusterSpec& cluster, const TaskId& task) {
  return task.type != "evaluator" && ResolvedCluster{.cluster = cluster, .task = task}.is_chief();
}

std::string name_in(const ClusterSpec& cluster, const TaskId& task) {
  return task.name() + (is_chief(cluster, task) ? " (chief)" : "");
}

}  // namespace tandem::internal
