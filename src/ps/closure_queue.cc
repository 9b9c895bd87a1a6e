#include "ps/closure_queue.h"

#include <algorithm>
#include <cassert>

namespace tandem::internal::ps {

std::uint64_t ClosureQueue::schedule() {
  assert(!full() && !failed_);
  return next_++;
}

std::optional<std::uint64_t> ClosureQueue::take(int worker) {
  assert(!running_on(worker));
  std::uint64_t closure = 0;
  if (!returned_.empty()) {
    closure = returned_.extract(returned_.begin()).value();
  } else if (fresh_ < next_) {
    closure = fresh_++;
  } else {
    return std::nullopt;
  }
  running_[worker] = closure;
  return closure;
}

std::uint64_t ClosureQueue::finish(int worker) {
  const auto found = running_.find(worker);
  assert(found != running_.end());
  const std::uint64_t closure = found->second;
  running_.erase(found);
  return closure;
}

ClosureQueue::Lost ClosureQueue::lose(int worker) {
  const Lost lost{.closure = finish(worker), .cancelled = failed_};
  if (!failed_) returned_.insert(lost.closure);
  return lost;
}

std::vector<std::uint64_t> ClosureQueue::fail() {
  failed_ = true;
  std::vector<std::uint64_t> cancelled(returned_.begin(), returned_.end());
  for (; fresh_ < next_; ++fresh_) cancelled.push_back(fresh_);
  returned_.clear();
  return cancelled;
}

void ClosureQueue::clear_failure() {
  assert(running_.empty());
  failed_ = false;
}

std::optional<std::uint64_t> ClosureQueue::running_on(int worker) const {
  const auto found = running_.find(worker);
  if (found == running_.end()) return std::nullopt;
  return found->second;
}

std::uint64_t ClosureQueue::settled_below() const {
  std::uint64_t lowest = fresh_;
  if (!returned_.empty()) lowest = std::min(lowest, *returned_.begin());
  for (const auto& [worker, closure] : running_) lowest = std::min(lowest, closure);
  return lowest;
}

}  // namespace tandem::internal::ps
