#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/error.h"

namespace tandem::internal {

// Tells a seat that another one failed; that one's own error is the one to report.
class MeetingAborted : public Aborted {
 public:
  using Aborted::Aborted;
};

// Where the replica threads of one process wait for each other: a barrier that can be aborted.
//
// One round of use: every seat calls arrive() any number of times, then leave() once; reset() readies it for
// the next round once all have left. A seat that waits is always woken: by the others arriving, by abort(),
// or because a seat has left and so can never arrive.
class Meeting {
 public:
  explicit Meeting(int seats);

  // Returns when every seat has arrived. `where` names the operation for error messages.
  // Throws MeetingAborted after abort(), FailedPrecondition (naming both seats) if a seat left or arrived
  // elsewhere.
  void arrive(int seat, const char* where);

  // This seat is done with the round.
  void leave(int seat);

  // Wakes every waiter, and makes every later arrive() throw, until reset().
  void abort();
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  // Only while no seat is in arrive().
  void reset();

  int seats() const { return static_cast<int>(where_.size()); }

 private:
  void wait(int seat, const char* where, std::uint64_t phase);
  void check(int seat, const char* where) const;

  const int spins_;
  std::atomic<std::uint64_t> phase_{0};
  std::atomic<int> missing_;
  std::atomic<bool> aborted_{false};
  std::atomic<int> left_{0};

  // Where each seat waits, null while it computes; read for messages only.
  std::vector<std::atomic<const char*>> where_;
  std::vector<std::atomic<bool>> gone_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace tandem::internal
