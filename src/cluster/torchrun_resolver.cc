#include "cluster/environment.h"
#include "cluster/ranks.h"
#include "tandem/cluster_resolver.h"

namespace tandem {

std::optional<ResolvedCluster> TorchrunClusterResolver::resolve() const {
  const internal::RankVariables variables = {name(), "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
  if (options_.port_base != 0) return internal::workers_by_rank(variables, options_, options_.port_base);
  // Two runs of torchrun on one machine differ in this port, so the ports after it seldom meet either.
  const auto master_port = internal::int_variable(options_.environment, "MASTER_PORT", 1);
  return internal::workers_by_rank(variables, options_, master_port.value_or(29'500) + 1);
}

}  // namespace tandem
