#pragma once

#include <string>
#include <vector>

#include "tandem/strategy.h"

namespace tandem {

struct CentralStorageOptions {
  // One replica per entry. Empty: every visible GPU, or one logical CPU device per core (8 at most) where
  // there is none.
  std::vector<std::string> compute_devices = {};

  // Intra-op threads of each CPU replica. 0: the usable cores divided by the replicas.
  int threads_per_replica = 0;
};

// Keeps one copy of the parameters, on the CPU, for all replicas of the machine; synchronous, one update per
// step.
//
// CPU replicas read that copy where it lies; GPU replicas have a cache of it, refreshed by each update. Batch
// norm's statistics stay each replica's own.
class CentralStorageStrategy final : public Strategy {
 public:
  // Throws InvalidArgument if a device is missing or named twice.
  explicit CentralStorageStrategy(CentralStorageOptions options = {});
};

// TensorFlow's name for it.
namespace experimental {
using tandem::CentralStorageStrategy;
}

}  // namespace tandem
