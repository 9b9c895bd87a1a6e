#include "ps/closure_set.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem::internal::ps {

bool ClosureSet::contains(std::uint64_t id) const {
  if (id < settled_below_) return true;
  const auto after = ranges_.upper_bound(id);
  return after != ranges_.begin() && id < std::prev(after)->second;
}

void ClosureSet::insert(std::uint64_t id) {
  if (contains(id)) return;
  auto after = ranges_.upper_bound(id);
  std::uint64_t end = id + 1;
  if (after != ranges_.end() && after->first == end) {
    end = after->second;
    after = ranges_.erase(after);
  }
  if (after != ranges_.begin() && std::prev(after)->second == id) {
    std::prev(after)->second = end;
  } else {
    ranges_.emplace_hint(after, id, end);
  }
  // What begins right at the border is part of what is settled; beyond the bound the oldest hole is closed.
  while (!ranges_.empty() && (ranges_.begin()->first == settled_below_ || ranges_.size() > kMostRanges)) {
    settled_below_ = ranges_.begin()->second;
    ranges_.erase(ranges_.begin());
  }
}

void ClosureSet::settle_below(std::uint64_t id) {
  settled_below_ = std::max(settled_below_, id);
  while (!ranges_.empty() && ranges_.begin()->first <= settled_below_) {
    settled_below_ = std::max(settled_below_, ranges_.begin()->second);
    ranges_.erase(ranges_.begin());
  }
}

bool ClosureSet::restore(std::uint64_t settled_below, std::map<std::uint64_t, std::uint64_t> ranges) {
  if (settled_below < 1 || ranges.size() > kMostRanges) return false;
  std::uint64_t last = settled_below;
  for (const auto& [begin, end] : ranges) {
    if (begin <= last || end <= begin) return false;
    last = end;
  }
  settled_below_ = settled_below;
  ranges_ = std::move(ranges);
  return true;
}

}  // namespace tandem::internal::ps
