#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cluster/text.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem {
namespace {

struct Job {
  std::string name;
  std::vector<std::map<int, std::string>> parts;
};

bool is_list(const std::map<int, std::string>& tasks) {
  return tasks.empty() || tasks.rbegin()->first == static_cast<int>(tasks.size()) - 1;
}

std::map<int, std::string> merge(const Job& job) {
  std::map<int, std::string> merged;
  if (std::all_of(job.parts.begin(), job.parts.end(), is_list)) {
    for (auto part = job.parts.begin(); part != job.parts.end(); ++part) {
      if (std::find(job.parts.begin(), part, *part) != part) continue;  // seen before
      for (const auto& [index, address] : *part) merged.emplace(static_cast<int>(merged.size()), address);
    }
    return merged;
  }
  for (const auto& part : job.parts) {
    for (const auto& [index, address] : part) {
      const auto [there, is_new] = merged.emplace(index, address);
      if (is_new || there->second == address) continue;
      throw InvalidArgument(fmt::format(
          "union: {}:{} is at {} in one cluster and at {} in another: expected one address for each task",
          job.name, index, internal::quote(there->second), internal::quote(address)));
    }
  }
  return merged;
}

}  // namespace

UnionClusterResolver::UnionClusterResolver(std::vector<std::shared_ptr<const ClusterResolver>> parts)
    : parts_(std::move(parts)) {
  const bool complete =
      std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part != nullptr; });
  if (parts_.empty() || !complete) {
    throw InvalidArgument("union: expected at least one resolver, and none of them null");
  }
}

std::optional<ResolvedCluster> UnionClusterResolver::resolve() const {
  std::optional<ResolvedCluster> whole;
  std::vector<Job> jobs;
  const auto take_first = [](std::string& into, const std::string& value) {
    if (into.empty()) into = value;
  };
  for (const auto& resolver : parts_) {
    const auto part = resolver->resolve();
    if (!part) continue;
    if (!whole) {
      whole.emplace();
      whole->source = name();
    }
    if (!whole->task) whole->task = part->task;
    take_first(whole->rpc_layer, part->rpc_layer);
    take_first(whole->environment, part->environment);
    take_first(whole->model_dir, part->model_dir);
    take_first(whole->session_master, part->session_master);
    for (const auto& name : part->cluster.jobs()) {
      auto job = std::find_if(jobs.begin(), jobs.end(), [&](const Job& known) { return known.name == name; });
      if (job == jobs.end()) job = jobs.insert(jobs.end(), Job{name, {}});
      std::map<int, std::string> tasks;
      for (const int index : part->cluster.task_indices(name)) {
        tasks.emplace(index, part->cluster.task_address(name, index));
      }
      job->parts.push_back(std::move(tasks));
    }
  }
  if (!whole) return std::nullopt;
  ClusterSpec::Jobs merged;
  for (const auto& job : jobs) merged.emplace_back(job.name, JobTasks(merge(job)));
  whole->cluster = ClusterSpec(std::move(merged));
  try {
    whole->check();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("union: {}", error.what()));
  }
  return whole;
}

}  // namespace tandem
