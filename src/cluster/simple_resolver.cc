#include "tandem/cluster_resolver.h"

namespace tandem {

std::optional<ResolvedCluster> SimpleClusterResolver::resolve() const {
  cluster_.check();
  return cluster_;
}

}  // namespace tandem
