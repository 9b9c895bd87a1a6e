#include "comm/local/board.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

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
  const auto describe = [&](std::size_t seat) {
    return fmt::format("replica {} has {} elements of {}", seat, tensors_[seat].numel(),
                       c10::toString(tensors_[seat].scalar_type()));
  };
  const auto mine = static_cast<std::size_t>(replica);
  for (std::size_t other = 0; other < tensors_.size(); ++other) {
    if (tensors_[mine].numel() == tensors_[other].numel() &&
        tensors_[mine].scalar_type() == tensors_[other].scalar_type()) {
      continue;
    }
    // The same words on both replicas: either may be the one whose error is reported.
    const auto [first, second] = std::minmax(mine, other);
    throw InvalidArgument(
        fmt::format("{} of different tensors: {}, {}", where, describe(first), describe(second)));
  }
}

}  // namespace tandem::internal
