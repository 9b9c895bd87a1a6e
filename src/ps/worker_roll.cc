#include "ps/worker_roll.h"

namespace tandem::internal::ps {

std::uint64_t WorkerRoll::arrive(int worker, Incarnation incarnation, std::uint64_t step,
                                 std::uint64_t connection) {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(worker);
  const bool same = known != workers_.end() && known->second.incarnation == incarnation;
  workers_[worker] = {.incarnation = incarnation, .connection = connection};
  finished_.erase(worker);
  std::uint64_t begin = step;
  // The same process over another connection keeps its clock.
  if (!same) begin = clocks_.join(worker, step > 0 ? std::optional(step) : std::nullopt);
  complete_ = complete_ || static_cast<int>(workers_.size()) >= expected_;
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
           return true;
         }) > 0;
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
}

bool WorkerRoll::wait_finished(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return static_cast<int>(finished_.size()) >= expected_; });
}

}  // namespace tandem::internal::ps
