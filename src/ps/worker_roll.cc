#include "ps/worker_roll.h"

#include <algorithm>

namespace tandem::internal::ps {

std::uint64_t WorkerRoll::arrive(int worker, Incarnation incarnation, std::uint64_t step,
                                 std::uint64_t connection) {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(worker);
  const bool same = known != workers_.end() && known->second.incarnation == incarnation;
  workers_[worker] = {.incarnation = incarnation, .connection = connection};
  finished_.erase(worker);
  gone_.erase(worker);
  came_ = true;
  std::uint64_t begin = step;
  // The same process over another connection keeps its clock.
  if (!same) begin = clocks_.join(worker, step > 0 ? std::optional(step) : std::nullopt);
  complete_ = complete_ || static_cast<int>(workers_.size() + finished_.size()) >= expected_;
  return begin;
}

bool WorkerRoll::is_current(int worker, std::uint64_t connection) const {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(worker);
  return known != workers_.end() && known->second.connection == connection;
}

void WorkerRoll::lost(int worker, std::uint64_t connection, Clock::time_point until) {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(worker);
  if (known != workers_.end() && known->second.connection == connection) known->second.until = until;
}

void WorkerRoll::finished(int worker) {
  {
    const std::lock_guard lock(mutex_);
    finished_.insert(worker);
    if (worker == 0) chief_finished_ = Clock::now();
    clocks_.leave(worker);
    workers_.erase(worker);
  }
  changed_.notify_all();
}

bool WorkerRoll::expire(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(workers_, [&](const auto& entry) {
           if (!entry.second.until || now < *entry.second.until) return false;
           clocks_.leave(entry.first);
           gone_[entry.first] = now;
           return true;
         }) > 0;
}

bool WorkerRoll::has_begun() const {
  if (!bounded_) return true;
  const std::lock_guard lock(mutex_);
  return complete_;
}

bool WorkerRoll::may_start(int worker, std::uint64_t step) const {
  if (!bounded_) return true;
  const std::lock_guard lock(mutex_);
  return complete_ && clocks_.may_start(worker, step);
}

void WorkerRoll::step_done(int worker, std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  clocks_.finished(worker, step);
}

std::vector<int> WorkerRoll::busy_with(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  return clocks_.busy_with(step);
}

void WorkerRoll::catch_up(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  clocks_.catch_up(step);
}

int WorkerRoll::live() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(workers_.size());
}

std::set<int> WorkerRoll::all_finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void WorkerRoll::restore_finished(const std::set<int>& workers) {
  const std::lock_guard lock(mutex_);
  finished_ = workers;
  chief_finished_ = Clock::now();
}

bool WorkerRoll::is_over(Clock::time_point now) const {
  // After a restart those who are left get time to find it; and if all is over, a new chief may come.
  if (finished_.contains(0)) return (came_ && workers_.empty()) || now - chief_finished_ >= absence_;
  const bool all_gone =
      std::ranges::all_of(gone_, [&](const auto& entry) { return now - entry.second >= absence_; });
  return came_ && workers_.empty() && all_gone;
}

bool WorkerRoll::wait_until_over(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLook{50};  // some of it is a matter of time alone
  const Clock::time_point until = Clock::now() + timeout;
  std::unique_lock lock(mutex_);
  while (!is_over(Clock::now())) {
    if (Clock::now() >= until) return false;
    changed_.wait_until(lock, std::min(until, Clock::now() + kLook));
  }
  return true;
}

}  // namespace tandem::internal::ps
