#include <fmt/format.h>

#include <algorithm>

#include "cluster/job_types.h"
#include "cluster/text.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using internal::quote;

int tasks_of(const ClusterSpec& cluster, const char* job) {
  return cluster.has_job(job) ? cluster.num_tasks(job) : 0;
}

int chiefs(const ClusterSpec& cluster) {
  return tasks_of(cluster, "chief") + tasks_of(cluster, "master");
}

bool is_chief_type(const std::string& type) {
  return type == "chief" || type == "master";
}

void check_type(const ClusterSpec& cluster, const std::string& type) {
  const auto& types = internal::job_types();
  if (std::find(types.begin(), types.end(), type) == types.end()) {
    throw InvalidArgument(
        fmt::format("task.type is {}{}: expected {}, as in {{\"type\": \"worker\", \"index\": 0}}",
                    quote(type), internal::did_you_mean(type, types), fmt::join(types, ", ")));
  }
  if (cluster.has_job(type) || type == "evaluator") return;
  throw InvalidArgument(fmt::format(
      "task.type is {}, but cluster has no such job (it has {}), as in {{\"type\": \"{}\", \"index\": {}}}",
      quote(type), fmt::join(cluster.jobs(), ", "), cluster.jobs().front(),
      cluster.task_indices(cluster.jobs().front()).front()));
}

// Which indices the task's job has, in words.
std::string choice(const ClusterSpec& cluster, const TaskId& task, const std::vector<int>& indices) {
  if (!cluster.has_job(task.type)) return "an evaluator outside cluster is number 0";
  const bool dense = indices.back() == static_cast<int>(indices.size()) - 1;
  if (dense && indices.size() == 1) return fmt::format("cluster.{} has one task, 0", task.type);
  if (dense) {
    return fmt::format("cluster.{} has {} tasks, 0 to {}", task.type, indices.size(), indices.back());
  }
  if (indices.size() <= 8)
    return fmt::format("cluster.{} has the tasks {}", task.type, fmt::join(indices, ", "));
  return fmt::format("cluster.{} has {} tasks between {} and {}, but not this one", task.type, indices.size(),
                     indices.front(), indices.back());
}

void check_index(const ClusterSpec& cluster, const TaskId& task) {
  // An evaluator beside the cluster has no list to be in; it is still the only one.
  const std::vector<int> indices =
      cluster.has_job(task.type) ? cluster.task_indices(task.type) : std::vector<int>{0};
  if (std::binary_search(indices.begin(), indices.end(), task.index)) return;
  throw InvalidArgument(fmt::format("task.index is {}, but {}, as in {{\"type\": \"{}\", \"index\": {}}}",
                                    task.index, choice(cluster, task, indices), task.type, indices.back()));
}

}  // namespace

std::optional<std::string> ResolvedCluster::master() const {
  if (!session_master.empty()) return session_master;
  if (!task || cluster.tasks().size() <= 1) return "";
  if (!cluster.has_job(task->type)) return std::nullopt;
  const std::string& address = cluster.task_address(*task);
  return rpc_layer.empty() ? address : fmt::format("{}://{}", rpc_layer, address);
}

bool ResolvedCluster::is_chief() const {
  if (cluster.empty()) return true;
  if (!task) return false;
  if (is_chief_type(task->type) || task->type == "evaluator") return true;
  return task->type == "worker" && task->index == 0 && chiefs(cluster) == 0;
}

std::optional<int> ResolvedCluster::worker_count() const {
  if (cluster.empty()) return 1;
  if (!task || task->type == "ps") return std::nullopt;
  if (task->type != "evaluator") return chiefs(cluster) + tasks_of(cluster, "worker");
  if (!cluster.has_job("evaluator")) return std::nullopt;
  return cluster.num_tasks("evaluator");
}

std::optional<int> ResolvedCluster::id_in_cluster() const {
  if (cluster.empty()) return 0;
  if (!task || task->type == "ps") return std::nullopt;
  if (is_chief_type(task->type)) return 0;
  return task->type == "worker" ? task->index + chiefs(cluster) : task->index;
}

void ResolvedCluster::check() const {
  cluster.check();
  if (!task) return;
  if (cluster.empty()) {
    if (task->type == "worker" && task->index == 0) return;
    throw InvalidArgument(fmt::format(
        "task is {}, but there is no cluster: without one a process is worker 0 and alone; add the "
        "cluster, as in \"cluster\": {{\"worker\": [\"10.0.0.1:2222\"]}}",
        quote(task->name())));
  }
  check_type(cluster, task->type);
  check_index(cluster, *task);
}

}  // namespace tandem
