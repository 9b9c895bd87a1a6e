#pragma once

#include <string>
#include <vector>

#include "tandem/communicator.h"

namespace tandem::bench {

// One process of those that bench/collectives measures.
struct MemberFlags {
  std::string engine;  // "tcp", "gloo", "mpi", or "socket": nothing but a connection between two
  int rank = 0;        // mpi: what mpirun says
  int size = 1;
  std::string orders;      // name of the socket where it gets its orders
  std::vector<int> ports;  // of the first communicator's members, of the second's, ...; none for mpi
};

// The algorithms of the communicators that a process of engine tcp has, if it has more than one.
inline constexpr AllReduceAlgorithm kAlgorithms[] = {
    AllReduceAlgorithm::kAuto, AllReduceAlgorithm::kRing, AllReduceAlgorithm::kRingChunked,
    AllReduceAlgorithm::kHalvingDoubling, AllReduceAlgorithm::kBcube};

// Joins the others and does as it is told, until whoever gives the orders is gone.
void be_member(MemberFlags flags);

// MPI_Allreduce, a sum in place: what Open MPI makes of it without tandem. See open_mpi.cc.
bool has_mpi();
void mpi_all_reduce(float* data, std::int64_t count);

}  // namespace tandem::bench
