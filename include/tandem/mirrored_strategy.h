#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/cross_device_ops.h"
#include "tandem/strategy.h"

namespace tandem {

struct MirroredOptions {
  // One replica per entry, e.g. "/cpu:0" or "/gpu:1". Empty: every visible GPU, or one logical CPU device per
  // core (8 at most) where there is none.
  std::vector<std::string> devices = {};

  // Intra-op threads of each CPU replica. 0: the usable cores divided by the replicas.
  int threads_per_replica = 0;

  // How gradients are summed. Empty: in shared memory.
  std::shared_ptr<CrossDeviceOps> cross_device_ops = {};
};

// Keeps one copy of the model per local device, equal after every step.
//
// Not thread-safe: one run() at a time. Replicas run on threads it owns.
class MirroredStrategy final : public Strategy {
 public:
  // Throws InvalidArgument if a device is missing or named twice.
  explicit MirroredStrategy(MirroredOptions options = {});
};

}  // namespace tandem
