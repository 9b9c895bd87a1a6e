#include "comm/backends.h"

namespace tandem::internal {

const std::vector<Backend>& backends() {
  static const std::vector<Backend> all{
      {"tcp", tcp::available, tcp::create},
      {"gloo", gloo_tcp::available, gloo_tcp::create},
      {"mpi", mpi::available, mpi::create},
      {"nccl", nccl::available, nccl::create},
  };
  return all;
}

}  // namespace tandem::internal
