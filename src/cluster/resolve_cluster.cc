#include <fmt/format.h>

#include <memory>
#include <vector>

#include "base/log.h"
#include "cluster/text.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using Resolvers = std::vector<std::unique_ptr<const ClusterResolver>>;

// Whether a source that was passed over would have said something else. One that cannot be read counts.
bool contradicts(const ClusterResolver& passed_over, const ResolvedCluster& chosen) {
  try {
    const auto other = passed_over.resolve();
    return other && (other->cluster != chosen.cluster || other->task != chosen.task);
  } catch (const Error&) {
    return true;
  }
}

// These set their variables for a single process too, which then trains alone.
Resolvers launchers(const Environment& environment) {
  Resolvers all;
  all.push_back(std::make_unique<SlurmClusterResolver>(SlurmOptions{.environment = environment}));
  all.push_back(std::make_unique<MpiClusterResolver>(RankOptions{.environment = environment}));
  all.push_back(std::make_unique<TorchrunClusterResolver>(RankOptions{.environment = environment}));
  return all;
}

// What a launcher of more than one process says this one's number is. The innermost launcher comes first.
std::optional<int> rank_of_launcher(const Environment& environment) {
  for (const auto& [rank, size] :
       {std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, std::pair{"RANK", "WORLD_SIZE"},
        std::pair{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, std::pair{"SLURM_PROCID", "SLURM_NTASKS"}}) {
    const auto count = environment(size);
    const auto own = environment(rank);
    if (own && count && internal::parse_int(*count).value_or(0) > 1) return internal::parse_int(*own);
  }
  return std::nullopt;
}

// Those that a person or a script gave on purpose, the strongest first.
Resolvers explicit_sources(const ClusterFlags& flags, const Environment& environment) {
  // Beside --worker_hosts the flags of the task belong to it.
  TaskOverrides overrides;
  if (flags.worker_hosts.empty()) overrides = {.task_type = flags.task_type, .task_index = flags.task_index};
  Resolvers sources;
  if (!flags.worker_hosts.empty()) {
    ClusterFlags with_index = flags;
    if (!with_index.task_index) with_index.task_index = rank_of_launcher(environment);
    sources.push_back(std::make_unique<FlagsClusterResolver>(with_index));
  }
  if (!flags.cluster_file.empty()) {
    sources.push_back(std::make_unique<FileClusterResolver>(flags.cluster_file, overrides));
  }
  if (environment("TANDEM_CLUSTER_FILE")) {
    sources.push_back(std::make_unique<FileClusterResolver>(overrides, environment));
  }
  if (environment("TF_CONFIG"))
    sources.push_back(std::make_unique<TFConfigClusterResolver>(overrides, environment));
  return sources;
}

}  // namespace

ResolvedCluster resolve_cluster(const ClusterFlags& flags, const Environment& environment) {
  const auto sources = explicit_sources(flags, environment);
  if (!sources.empty()) {
    const ResolvedCluster chosen = *sources.front()->resolve();
    for (std::size_t i = 1; i < sources.size(); ++i) {
      if (!contradicts(*sources[i], chosen)) continue;
      internal::log_warning("the cluster is that of {}; what {} says differs and is ignored", chosen.source,
                            sources[i]->name());
      break;  // one line is enough to be looked into
    }
    return chosen;
  }
  if (!flags.task_type.empty() || flags.task_index.value_or(0) != 0) {
    throw InvalidArgument(
        fmt::format("--task_{} is given, but there is no cluster: give --worker_hosts "
                    "10.0.0.1:2222,10.0.0.2:2222, --cluster_file "
                    "or TF_CONFIG with it",
                    flags.task_type.empty() ? fmt::format("index {}", *flags.task_index)
                                            : fmt::format("type {}", internal::quote(flags.task_type))));
  }
  for (const auto& launcher : launchers(environment)) {
    auto resolved = launcher->resolve();
    if (resolved && resolved->cluster.tasks().size() > 1) return std::move(*resolved);
  }
  ResolvedCluster alone;
  alone.source = "";
  return alone;
}

}  // namespace tandem
