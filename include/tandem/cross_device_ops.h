#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace tandem {

namespace internal {
class Meeting;
}

// How the replicas of one process combine tensors.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  virtual std::string name() const = 0;

  // Whether every replica can read and write the others' tensors directly. The optimizer update is then
  // sharded over the replicas in the same pass; otherwise each replica updates its whole copy after
  // all_reduce().
  virtual bool shares_memory() const = 0;

  // Replaces each replica's tensor by the sum over all replicas, added in replica order. Called by every
  // replica's thread at once, with contiguous tensors of one length and dtype. Throws what Meeting::arrive()
  // throws.
  virtual void all_reduce(internal::Meeting& meeting, int replica, at::Tensor& tensor) = 0;
};

// For CPU replicas: each replica sums its share of the elements over all replicas and writes the sum into all
// of them, in place. For one strategy at a time.
std::shared_ptr<CrossDeviceOps> shared_memory_all_reduce();

// TensorFlow's ReductionToOneDevice: everything is copied to the first replica's device, added there, and
// copied back. Works between any devices. For one strategy at a time.
std::shared_ptr<CrossDeviceOps> reduction_to_one_device();

// NVIDIA's NCCL. Not in this build: says so in the log and gives what works instead.
std::shared_ptr<CrossDeviceOps> nccl_all_reduce();

}  // namespace tandem
