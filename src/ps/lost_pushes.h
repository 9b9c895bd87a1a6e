#pragma once

#include <cstdint>
#include <vector>

namespace tandem::internal::ps {

// Which of its pushes a worker knows to be lost to a shard: the ps had settled them, died, and came back from
// a snapshot without them. One that dies again before its next snapshot comes back to the same state, and
// reports what was lost then once more: no push is counted twice.
class LostPushes {
 public:
  // `count` pushes up to number `last` are not there. Returns how many of these were not known to be lost.
  std::uint64_t add(std::uint64_t last, std::uint64_t count);

  std::uint64_t count() const { return count_; }

 private:
  struct Range {
    std::uint64_t first;
    std::uint64_t last;
  };
  std::vector<Range> ranges_;  // ascending, apart from each other
  std::uint64_t count_ = 0;
};

}  // namespace tandem::internal::ps
