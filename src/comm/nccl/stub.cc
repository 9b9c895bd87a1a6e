#include "comm/backends.h"
#include "tandem/error.h"

namespace tandem::internal::nccl {

bool available() {
  return false;
}

std::unique_ptr<Engine> create(GroupSetup) {
  throw Unimplemented(
      "engine \"nccl\" is not in this build: install the CUDA toolkit and NCCL and build again, or use "
      "engine "
      "\"tcp\"");
}

}  // namespace tandem::internal::nccl
