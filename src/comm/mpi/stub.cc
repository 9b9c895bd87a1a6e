#include "comm/backends.h"
#include "tandem/error.h"

namespace tandem::internal::mpi {

bool available() {
  return false;
}

std::unique_ptr<Engine> create(GroupSetup) {
  throw Unimplemented(
      "engine \"mpi\" is not in this build: install MPI (Debian: libopenmpi-dev) and build again, or use "
      "engine "
      "\"tcp\"");
}

}  // namespace tandem::internal::mpi
