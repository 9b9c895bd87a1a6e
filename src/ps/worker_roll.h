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

  // Where steps are bound to each other, none begins before `expected` workers have come once, those counted
  // that have finished. `absence`: see wait_until_over().
  WorkerRoll(std::optional<std::uint64_t> staleness, int expected, std::chrono::milliseconds absence)
      : bounded_(staleness.has_value()), expected_(expected), absence_(absence), clocks_(staleness) {}

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

  // Whether steps have begun: a push of the first one must not be all that there is of it because it came
  // before the other workers.
  bool has_begun() const;
  bool may_start(int worker, std::uint64_t step) const;
  // Its pushes of this step are settled.
  void step_done(int worker, std::uint64_t step);
  std::vector<int> busy_with(std::uint64_t step) const;
  // All steps before this one are over, for everybody.
  void catch_up(std::uint64_t step);

  int live() const;
  std::set<int> all_finished() const;
  void restore_finished(const std::set<int>& workers);
  // Until nobody will need this ps any more: the chief (worker 0) has finished, and nobody who has not is
  // here, or it was `absence` ago; or all who came have finished, or have been gone for `absence`. False
  // after `timeout`.
  bool wait_until_over(std::chrono::milliseconds timeout);

 private:
  bool is_over(Clock::time_point now) const;

  struct Worker {
    Incarnation incarnation = {};
    std::uint64_t connection = 0;
    std::optional<Clock::time_point> until = {};
  };

  const bool bounded_;
  const int expected_;
  const std::chrono::milliseconds absence_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  WorkerClocks clocks_;
  bool complete_ = false;
  bool came_ = false;              // somebody, to this process
  std::map<int, Worker> workers_;  // that are here, or may be back in a moment
  std::map<int, Clock::time_point> gone_;
  std::set<int> finished_;
  Clock::time_point chief_finished_ = {};  // if it is among them
};

}  // namespace tandem::internal::ps
