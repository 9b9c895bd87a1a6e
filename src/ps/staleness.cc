#include "ps/staleness.h"

#include <algorithm>

namespace tandem::internal::ps {

std::uint64_t WorkerClocks::join(int worker, std::optional<std::uint64_t> at) {
  clocks_.erase(worker);
  const std::uint64_t clock = at.value_or(slowest());
  clocks_[worker] = clock;
  last_slowest_ = slowest();
  return clock;
}

void WorkerClocks::leave(int worker) {
  last_slowest_ = slowest();
  clocks_.erase(worker);
}

void WorkerClocks::finished(int worker, std::uint64_t step) {
  const auto found = clocks_.find(worker);
  if (found == clocks_.end()) return;
  found->second = std::max(found->second, step + 1);
  last_slowest_ = slowest();
}

void WorkerClocks::catch_up(std::uint64_t step) {
  for (auto& [worker, clock] : clocks_) clock = std::max(clock, step);
  last_slowest_ = slowest();
}

bool WorkerClocks::may_start(int worker, std::uint64_t step) const {
  if (!clocks_.contains(worker)) return false;
  return !staleness_ || step <= slowest() || step - slowest() <= *staleness_;
}

std::vector<int> WorkerClocks::live() const {
  std::vector<int> workers;
  for (const auto& [worker, clock] : clocks_) workers.push_back(worker);
  return workers;
}

std::vector<int> WorkerClocks::busy_with(std::uint64_t step) const {
  std::vector<int> workers;
  for (const auto& [worker, clock] : clocks_) {
    if (clock <= step) workers.push_back(worker);
  }
  return workers;
}

std::uint64_t WorkerClocks::slowest() const {
  std::optional<std::uint64_t> least;
  for (const auto& [worker, clock] : clocks_) least = std::min(least.value_or(clock), clock);
  return least.value_or(last_slowest_);
}

std::uint64_t WorkerClocks::spread() const {
  std::uint64_t most = slowest();
  for (const auto& [worker, clock] : clocks_) most = std::max(most, clock);
  return most - slowest();
}

WholeStep::Offer WholeStep::offer(int worker, std::uint64_t step) {
  if (step < step_) return Offer::kLate;
  if (step > step_) return Offer::kEarly;
  held_.insert(worker);
  return Offer::kHeld;
}

std::optional<std::vector<int>> WholeStep::whole(std::span<const int> live) const {
  if (held_.empty()) return std::nullopt;
  const bool all = std::ranges::all_of(live, [&](int worker) { return held_.contains(worker); });
  const bool enough = aggregate_ && held_.size() >= *aggregate_;
  if (!all && !enough) return std::nullopt;
  return std::vector<int>(held_.begin(), held_.end());
}

void WholeStep::advance() {
  ++step_;
  held_.clear();
}

}  // namespace tandem::internal::ps
