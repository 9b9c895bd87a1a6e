#pragma once

#include <string>

#include "tandem/cluster_spec.h"

namespace tandem::internal {

// The value of --task, "worker:1". Throws InvalidArgument.
TaskId parse_task(const std::string& text);

// The chief, or worker 0 where there is none.
bool is_chief(const ClusterSpec& cluster, const TaskId& task);

// "worker:0 (chief)"
std::string name_in(const ClusterSpec& cluster, const TaskId& task);

}  // namespace tandem::internal
