#pragma once

#include <string>

#include "tandem/strategy.h"

namespace tandem {

// TensorFlow's strategy for TPUs: a name that programs carried over may use, and a clear answer. There are no
// TPUs in this version. What is written for it (global batches, fixed shapes, several steps in one call) runs
// under MirroredStrategy and MultiWorkerMirroredStrategy as it is.
class TPUStrategy final : public Strategy {
 public:
  // `tpu`: what TPUClusterResolver would be given. Always throws Unimplemented, with what to use instead.
  explicit TPUStrategy(const std::string& tpu = {});
};

namespace experimental {

using tandem::TPUStrategy;

}  // namespace experimental
}  // namespace tandem
