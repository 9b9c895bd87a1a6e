#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace tandem::internal::ps {

// The closures of a coordinator whose updates a shard holds. Ids count up from 1 as closures are scheduled
// and come about in that order, so the set is a few ranges; a hole is a closure that is under way, or one
// that pushes nothing here.
//
// Memory is bounded: the coordinator says from time to time below which id all closures are over, and of the
// holes at most kMostRanges are remembered. An older one counts as done: it is never applied twice, at worst
// not at all.
class ClosureSet {
 public:
  static constexpr std::size_t kMostRanges = 4096;

  bool contains(std::uint64_t id) const;
  // `id` from 1.
  void insert(std::uint64_t id);
  // Every closure below `id` is over: a push that still comes from one is a ghost's.
  void settle_below(std::uint64_t id);

  std::uint64_t settled_below() const { return settled_below_; }
  // Above settled_below(): first id to one past the last, ascending, neither touching nor overlapping.
  const std::map<std::uint64_t, std::uint64_t>& ranges() const { return ranges_; }

  // What ranges() and settled_below() said. False, and unchanged, if it cannot be a set.
  bool restore(std::uint64_t settled_below, std::map<std::uint64_t, std::uint64_t> ranges);

  friend bool operator==(const ClosureSet&, const ClosureSet&) = default;

 private:
  std::uint64_t settled_below_ = 1;
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

}  // namespace tandem::internal::ps
