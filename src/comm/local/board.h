#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/meeting.h"

namespace tandem::internal {

// Where the replicas of one process lay their tensors down for each other.
class Board {
 public:
  // Every replica calls it at once; returns when all tensors lie there, in replica order. They stay until the
  // next call, so the replicas must meet again before one of them calls it. Throws InvalidArgument, naming
  // both, if two tensors differ in length or dtype, and what Meeting::arrive() throws.
  const std::vector<at::Tensor>& lay_down(Meeting& meeting, int replica, const at::Tensor& tensor,
                                          const char* where);

 private:
  void check_alike(int replica, const char* where) const;

  std::vector<at::Tensor> tensors_;
};

}  // namespace tandem::internal
