#include "ps/lost_pushes.h"

#include <algorithm>

namespace tandem::internal::ps {

std::uint64_t LostPushes::add(std::uint64_t last, std::uint64_t count) {
  if (count == 0) return 0;
  const Range added{last - count + 1, last};
  const std::uint64_t before = count_;
  // Numbers only grow, so whatever is known from `first` on is within what is added.
  while (!ranges_.empty() && ranges_.back().last >= added.first) {
    Range& known = ranges_.back();
    count_ -= known.last - std::max(known.first, added.first) + 1;
    if (known.first >= added.first) {
      ranges_.pop_back();
    } else {
      known.last = added.first - 1;
    }
  }
  ranges_.push_back(added);
  count_ += count;
  return count_ - before;
}

}  // namespace tandem::internal::ps
