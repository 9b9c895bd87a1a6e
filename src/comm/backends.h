#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/engine.h"
#include "comm/group.h"

namespace tandem::internal {

// One kind of engine: a folder beside this file. A folder whose library was not there at build time has a
// stub that answers false.
struct Backend {
  const char* name;
  bool (*available)();
  // Connects the group. Throws what join_group() says.
  std::unique_ptr<Engine> (*create)(GroupSetup setup);
};

const std::vector<Backend>& backends();

namespace tcp {
bool available();
std::unique_ptr<Engine> create(GroupSetup setup);
}  // namespace tcp
namespace gloo_tcp {
bool available();
std::unique_ptr<Engine> create(GroupSetup setup);
}  // namespace gloo_tcp
namespace mpi {
bool available();
std::unique_ptr<Engine> create(GroupSetup setup);
}  // namespace mpi
namespace nccl {
bool available();
std::unique_ptr<Engine> create(GroupSetup setup);
}  // namespace nccl

}  // namespace tandem::internal
