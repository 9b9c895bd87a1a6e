#include "cluster/ranks.h"
#include "tandem/cluster_resolver.h"

namespace tandem {

std::optional<ResolvedCluster> MpiClusterResolver::resolve() const {
  return internal::workers_by_rank(
      {name(), "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}, options_,
      options_.port_base != 0 ? options_.port_base : 8888);
}

}  // namespace tandem
