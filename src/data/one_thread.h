#pragma once

#include <ATen/Parallel.h>

namespace tandem::internal {

// The cores belong to the replicas: a thread of the pipeline must not start an OpenMP team. Call it first in
// each such thread.
//
// libtorch gives a thread its count at its first parallel operation, from whatever any thread set last;
// asking for the count brings that forward, so that it cannot undo what is set here.
inline void use_one_thread() {
  at::get_num_threads();
  at::set_num_threads(1);
}

// The same for a while, in a thread that is not ours.
class OneThreadScope {
 public:
  OneThreadScope() : threads_(at::get_num_threads()) {
    if (threads_ != 1) at::set_num_threads(1);
  }
  ~OneThreadScope() {
    if (threads_ != 1) at::set_num_threads(threads_);
  }
  OneThreadScope(const OneThreadScope&) = delete;
  OneThreadScope& operator=(const OneThreadScope&) = delete;

 private:
  int threads_;
};

}  // namespace tandem::internal
