#include "cli/config_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tandem::internal {
namespace {

bool is_chief(const ResolvedCluster& resolved, const TaskId& task) {
  return task.type != "evaluator" && ResolvedCluster{.cluster = resolved.cluster, .task = task}.is_chief();
}

bool is_outside(const ResolvedCluster& resolved) {
  return resolved.task && !resolved.cluster.has_job(resolved.task->type);
}

// The jobs in the order of tasks(), which puts the chief first.
std::vector<std::string> jobs_in_order(const ClusterSpec& cluster) {
  std::vector<std::string> jobs;
  for (const auto& task : cluster.tasks()) {
    if (jobs.empty() || jobs.back() != task.type) jobs.push_back(task.type);
  }
  return jobs;
}

std::string marks(const ResolvedCluster& resolved, const TaskId& task) {
  std::string text;
  if (is_chief(resolved, task)) text += "  [chief]";
  if (resolved.task == task) text += "  <- this task";
  return text;
}

std::vector<TaskId> tasks_that(const ClusterSpec& cluster, bool train) {
  std::vector<TaskId> tasks = cluster.tasks();
  std::erase_if(tasks, [&](const TaskId& task) {
    return train ? task.type == "ps" || task.type == "evaluator" : task.type != "ps";
  });
  return tasks;
}

std::string node(const ResolvedCluster& resolved, const TaskId& task, const std::string& address) {
  std::string style;
  if (is_chief(resolved, task)) style += ", peripheries=2";
  if (resolved.task == task) style += ", style=filled, fillcolor=lightgrey";
  return fmt::format("\"{0}\" [label=\"{0}\\n{1}\"{2}];\n", task.name(), address, style);
}

}  // namespace

std::string text_picture(const ResolvedCluster& resolved) {
  if (resolved.cluster.empty()) return "no cluster: this process trains alone\n";
  const auto& cluster = resolved.cluster;
  const auto jobs = jobs_in_order(cluster);
  std::string out =
      fmt::format("cluster {} of {} tasks, from {}\n", cluster.id(), cluster.tasks().size(), resolved.source);
  for (const auto& job : jobs) {
    const bool last_job = job == jobs.back() && !is_outside(resolved);
    out += fmt::format("{} {}\n", last_job ? "└─" : "├─", job);
    const auto indices = cluster.task_indices(job);
    const auto digits = std::to_string(indices.back()).size();
    for (const int index : indices) {
      out += fmt::format("{}  {} {:>{}}  {}{}\n", last_job ? " " : "│", index == indices.back() ? "└─" : "├─",
                         index, digits, cluster.task_address(job, index), marks(resolved, {job, index}));
    }
  }
  if (is_outside(resolved)) {
    out += fmt::format("└─ {}, outside the cluster  <- this task\n", resolved.task->name());
  }
  return out;
}

std::string dot_picture(const ResolvedCluster& resolved) {
  const auto& cluster = resolved.cluster;
  std::string out = "graph tandem {\n  node [shape=box];\n";
  for (const auto& job : jobs_in_order(cluster)) {
    // A subgraph is drawn as a frame only if its name begins with "cluster".
    out += fmt::format("  subgraph cluster_{0} {{\n    label=\"{0}\";\n", job);
    for (const int index : cluster.task_indices(job)) {
      out += "    " + node(resolved, {job, index}, cluster.task_address(job, index));
    }
    out += "  }\n";
  }
  if (is_outside(resolved)) out += "  " + node(resolved, *resolved.task, "outside the cluster");

  const auto trainers = tasks_that(cluster, true);
  const auto servers = tasks_that(cluster, false);
  for (std::size_t i = 0; i < trainers.size(); ++i) {
    for (const auto& server : servers) {
      out += fmt::format("  \"{}\" -- \"{}\";\n", trainers[i].name(), server.name());
    }
    // Two tasks are neighbours once, not twice.
    const bool has_next = trainers.size() > 2 || i + 1 < trainers.size();
    if (servers.empty() && has_next) {
      out += fmt::format("  \"{}\" -- \"{}\";\n", trainers[i].name(),
                         trainers[(i + 1) % trainers.size()].name());
    }
  }
  return out + "}\n";
}

}  // namespace tandem::internal
