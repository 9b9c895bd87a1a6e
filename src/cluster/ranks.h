#pragma once

#include <optional>
#include <string>

#include "tandem/cluster_resolver.h"

namespace tandem::internal {

// The names of the variables that a launcher sets for each of its processes.
struct RankVariables {
  std::string launcher;
  const char* rank;
  const char* size;
  const char* local_size;  // how many of them run on this machine
};

// Makes workers of ranks: at the given hosts, or all on this machine. Empty if the variables are not set.
// Throws InvalidArgument if they do not tell where the others are, with what to give instead.
std::optional<ResolvedCluster> workers_by_rank(const RankVariables& variables, const RankOptions& options,
                                               int port_base);

}  // namespace tandem::internal
