#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "cluster/membership_core.h"
#include "ps/staleness.h"

namespace tandem::internal::ps {

// Which workers a ps has, how far each is, and who is done. Workers come and go at any time. Any thread.
class WorkerRoll {
 public:
  using Clock = std::chrono::steady_clock;

  // Where steps are bound to each other, none begins before `expected` workers have come once.
  WorkerRoll(std::optional<std::uint64_t> staleness, int expected)
      : bounded_(staleness.has_value()), expected_(expected), clocks_(staleness) {}

  // A worker's process is here, over that connection; an earlier connection of it counts no more. Returns the
  // step to go on with, which is `step` unless that is 0.
  std::uint64_t arrive(int worker, Incarnation incarnation, std::uint64_t step, std::uint64_t connection);
  // Whether this is the connection that the worker said hello on last.
  bool is_current(int worker, std::uint64_t connection) const;

  // The connection is gone. The worker has until `until` to come back.
  void lost(int worker, std::uint64_t connection, Clock::time_point until);
  // It will not come back.
  void finished(int worker);
  // Nobody waits any more for those whose time is over. True if there was one.
  bool expire(Clock::time_point now);

  bool may_start(int worker, std::uint64_t step) const;
  // Its pushes of this step are settled.
  void step_done(int worker, std::uint64_t step);
  std::vector<int> busy_with(std::uint64_t step) const;

  int live() const;
  std::set<int> all_finished() const;
  void restore_finished(const std::set<int>& workers);
  // Until so many workers as are expected have finished. False after `timeout`.
  bool wait_finished(std::chrono::milliseconds timeout);

 private:
  struct Worker {
    Incarnation incarnation = {};
    std::uint64_t connection = 0;
    std::optional<Clock::time_point> until = {};
  };

  const bool bounded_;
  const int expected_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  WorkerClocks clocks_;
  bool complete_ = false;
  std::map<int, Worker> workers_;
  std::set<int> finished_;
};

}  // namespace tandem::internal::ps
