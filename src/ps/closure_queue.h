#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace tandem::internal::ps {

// Which closure of a coordinator is to run next, and where each one is: waiting, with a worker, or over.
//
// Numbers count up in the order of schedule(), and closures are begun in that order. One whose worker is lost
// waits again, in front of all that were never begun. When one fails, those that wait are cancelled, and
// those with a worker are still awaited: only then clear_failure() lets new ones in.
//
// A pure state machine: it knows neither what a closure does nor who waits for it; no lock, clock or thread.
class ClosureQueue {
 public:
  static constexpr std::size_t kCapacity = 262'144;

  // `first`: the number of the first closure, from 1.
  explicit ClosureQueue(std::uint64_t first = 1, std::size_t capacity = kCapacity)
      : fresh_(first), next_(first), capacity_(capacity) {}

  // Whether schedule() must wait: as many as there is room for have not been begun.
  bool full() const { return queued() >= capacity_; }
  // The number of a new closure. Neither when full() nor after a failure.
  std::uint64_t schedule();

  // The next closure for a worker that has none; nothing if none waits.
  std::optional<std::uint64_t> take(int worker);

  // What became of the worker's closure; each gives its number.

  // It is over, well or not: a failure is told to fail() besides.
  std::uint64_t finish(int worker);
  // The worker is gone, and the closure waits again; after a failure it is cancelled instead, and over.
  struct Lost {
    std::uint64_t closure = 0;
    bool cancelled = false;
  };
  Lost lose(int worker);

  // Something failed. Gives the closures that are cancelled by it: all that wait.
  std::vector<std::uint64_t> fail();
  bool failed() const { return failed_; }
  // Only while none is with a worker.
  void clear_failure();

  bool idle() const { return queued() == 0 && running_.empty(); }
  std::size_t queued() const { return returned_.size() + static_cast<std::size_t>(next_ - fresh_); }
  std::size_t running() const { return running_.size(); }
  std::optional<std::uint64_t> running_on(int worker) const;

  // All closures below this number are over, and none of them will run again.
  std::uint64_t settled_below() const;

 private:
  std::set<std::uint64_t> returned_;      // from workers that were lost
  std::uint64_t fresh_;                   // from here to next_: scheduled, and never begun
  std::uint64_t next_;                    // to be scheduled
  std::map<int, std::uint64_t> running_;  // by worker
  std::size_t capacity_;
  bool failed_ = false;
};

}  // namespace tandem::internal::ps
