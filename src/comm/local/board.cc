#include "comm/local/board.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "tandem/error.h"

namespace tandem::internal {

const std::vector<at::Tensor>& Board::lay_down(Meeting& meeting, int replica, const at::Tensor& tensor,
                                               const char* where) {
  if (static_cast<int>(tensors_.size()) != meeting.seats()) {
    // The first time. Nobody passes before all have seen that it is too small.
    meeting.arrive(replica, where);
    if (replica == 0) tensors_.resize(static_cast<std::size_t>(meeting.seats()));
    meeting.arrive(replica, where);
  }
  tensors_[static_cast<std::size_t>(replica)] = tensor;
  meeting.arrive(replica, where);
  check_alike(replica, where);
  return tensors_;
}

void Board::check_alike(int replica, const char* where) const {
  const at::Tensor& mine = tensors_[static_cast<std::size_t>(replica)];
  for (std::size_t other = 0; other < tensors_.size(); ++other) {
    const at::Tensor& theirs = tensors_[other];
    if (mine.numel() == theirs.numel() && mine.scalar_type() == theirs.scalar_type()) continue;
    throw InvalidArgument(
        fmt::format("{} of different tensors: replica {} has {} elements of {}, replica {} has {} of {}",
                    where, replica, mine.numel(), c10::toString(mine.scalar_type()), other, theirs.numel(),
                    c10::toString(theirs.scalar_type())));
  }
}

}  // namespace tandem::internal
