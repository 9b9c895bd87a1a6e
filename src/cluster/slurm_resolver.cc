#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cluster/environment.h"
#include "cluster/slurm_nodes.h"
#include "cluster/text.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using internal::int_variable;

struct Variable {
  const char* name;
  std::string value;
};

// The first of these that is set. A step (srun) may have fewer nodes and tasks than its job, and then the
// step's variables are the ones that count.
std::optional<Variable> first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = environment(name)) return Variable{name, std::move(*value)};
  }
  return std::nullopt;
}

// mpirun or torchrun inside srun: Slurm then counts the launchers, and all that one of them starts have its
// SLURM_PROCID. Scripts that copy Slurm's numbers into RANK and WORLD_SIZE agree with it.
bool another_launcher_knows_better(const Environment& environment, int rank, int tasks) {
  const auto differs = [&](const char* rank_name, const char* size_name) {
    const auto other_rank = environment(rank_name);
    const auto other_size = environment(size_name);
    return other_rank && other_size &&
           (internal::parse_int(*other_rank) != rank || internal::parse_int(*other_size) != tasks);
  };
  return differs("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") || differs("RANK", "WORLD_SIZE");
}

std::vector<int> tasks_on_each(const SlurmOptions& options, std::size_t nodes, int tasks) {
  if (options.tasks_per_node) return std::vector<int>(nodes, *options.tasks_per_node);
  const auto given = first_of(options.environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (given) return internal::expand_tasks_per_node(given->value, given->name);
  if (const auto same = int_variable(options.environment, "SLURM_NTASKS_PER_NODE", 1)) {
    return std::vector<int>(nodes, *same);
  }
  if (nodes == 1) return {tasks};
  if (nodes == static_cast<std::size_t>(tasks)) return std::vector<int>(nodes, 1);
  throw InvalidArgument(fmt::format(
      "Slurm: SLURM_STEP_TASKS_PER_NODE is missing, so {} tasks cannot be told apart on {} nodes: start "
      "the program with srun, e.g. srun --ntasks-per-node 2",
      tasks, nodes));
}

// Which node and which of its tasks each rank is, as srun deals them out.
std::vector<std::pair<std::size_t, int>> places(const std::vector<int>& tasks_on, bool cyclic) {
  std::vector<std::pair<std::size_t, int>> all;
  if (!cyclic) {
    for (std::size_t node = 0; node < tasks_on.size(); ++node) {
      for (int local = 0; local < tasks_on[node]; ++local) all.emplace_back(node, local);
    }
    return all;
  }
  const int most = *std::max_element(tasks_on.begin(), tasks_on.end());
  for (int local = 0; local < most; ++local) {
    for (std::size_t node = 0; node < tasks_on.size(); ++node) {
      if (local < tasks_on[node]) all.emplace_back(node, local);
    }
  }
  return all;
}

std::vector<std::string> addresses_by_rank(const SlurmOptions& options, int rank, int tasks,
                                           const Variable& node_list) {
  const auto nodes = internal::expand_nodes(node_list.value, node_list.name);
  const auto tasks_on = tasks_on_each(options, nodes.size(), tasks);
  const auto sum = std::accumulate(tasks_on.begin(), tasks_on.end(), std::int64_t{0});
  if (tasks_on.size() != nodes.size() || sum != tasks) {
    throw InvalidArgument(fmt::format(
        "Slurm: {} is {}, which is {} nodes, but there are {} tasks on {} nodes by "
        "SLURM_STEP_TASKS_PER_NODE, and "
        "{} by SLURM_STEP_NUM_TASKS: expected numbers that agree, e.g. \"2(x3),1\" for 7 tasks on \"n[1-4]\"",
        node_list.name, internal::quote(node_list.value), nodes.size(), sum, tasks_on.size(), tasks));
  }
  const bool cyclic = options.environment("SLURM_DISTRIBUTION").value_or("").starts_with("cyclic");
  const auto place = places(tasks_on, cyclic);
  const auto [own_node, own_local] = place[static_cast<std::size_t>(rank)];
  const auto node = int_variable(options.environment, "SLURM_NODEID", 0);
  const auto local = int_variable(options.environment, "SLURM_LOCALID", 0);
  if (node && local && (static_cast<std::size_t>(*node) != own_node || *local != own_local)) {
    throw InvalidArgument(
        fmt::format("Slurm: SLURM_PROCID {} runs as task {} of node {}, but counting by "
                    "SLURM_STEP_TASKS_PER_NODE makes it task "
                    "{} of node {}: start with srun --distribution block (or cyclic), or give TF_CONFIG",
                    rank, *local, *node, own_local, own_node));
  }
  std::vector<std::string> addresses;
  for (const auto& [node_index, local_index] : place) {
    addresses.push_back(fmt::format("{}:{}", nodes[node_index], options.port_base + local_index));
  }
  return addresses;
}

}  // namespace

std::optional<ResolvedCluster> SlurmClusterResolver::resolve() const {
  const Environment& environment = options_.environment;
  const auto count = first_of(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  if (!count || !environment("SLURM_PROCID")) return std::nullopt;
  const int tasks = *int_variable(environment, count->name, 1);
  const int rank = *int_variable(environment, "SLURM_PROCID", 0);
  if (another_launcher_knows_better(environment, rank, tasks)) return std::nullopt;
  if (rank >= tasks) {
    throw InvalidArgument(fmt::format("SLURM_PROCID is {}, but {} is {}: expected 0 to {}", rank, count->name,
                                      tasks, tasks - 1));
  }
  const auto node_list =
      first_of(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!node_list) {
    throw InvalidArgument(
        "Slurm: SLURM_STEP_NODELIST is missing: start the program with srun, which sets it, e.g. to "
        "\"n[01-03]\"");
  }

  auto jobs = options_.jobs;
  if (jobs.empty()) jobs = {{"worker", tasks}};
  const auto wanted = std::accumulate(jobs.begin(), jobs.end(), std::int64_t{0},
                                      [](std::int64_t sum, const auto& job) { return sum + job.second; });
  const bool all_positive =
      std::all_of(jobs.begin(), jobs.end(), [](const auto& job) { return job.second > 0; });
  if (wanted != tasks || !all_positive) {
    throw InvalidArgument(
        fmt::format("Slurm: the jobs have {} tasks, but {} is {}: start as many, e.g. srun -n {}", wanted,
                    count->name, tasks, std::max<std::int64_t>(wanted, 1)));
  }

  const auto addresses = addresses_by_rank(options_, rank, tasks, *node_list);
  ResolvedCluster resolved;
  resolved.rpc_layer = options_.rpc_layer;
  resolved.source = name();
  ClusterSpec::Jobs made;
  auto next = addresses.begin();
  for (const auto& [job, size] : jobs) {
    const auto first_rank = static_cast<int>(next - addresses.begin());
    if (rank >= first_rank && rank < first_rank + size) resolved.task = TaskId{job, rank - first_rank};
    made.emplace_back(job, JobTasks(std::vector<std::string>(next, next + size)));
    next += size;
  }
  try {
    resolved.cluster = ClusterSpec(std::move(made));
    resolved.check();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("Slurm: {}", error.what()));
  }
  return resolved;
}

}  // namespace tandem
