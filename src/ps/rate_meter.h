#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>

namespace tandem::internal::ps {

// How fast a counter has grown over the last seconds. Any thread.
class RateMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // From time to time; more often than once a second changes nothing.
  void look(std::uint64_t count, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (!seen_.empty() && now - seen_.back().at < std::chrono::seconds(1)) return;
    seen_.push_back({count, now});
    if (seen_.size() > kSeen) seen_.pop_front();
  }

  double per_second(std::uint64_t count, Clock::time_point now) const {
    const std::lock_guard lock(mutex_);
    if (seen_.empty()) return 0;
    const double seconds = std::chrono::duration<double>(now - seen_.front().at).count();
    return seconds > 0 ? static_cast<double>(count - seen_.front().count) / seconds : 0;
  }

 private:
  static constexpr std::size_t kSeen = 6;  // of the last five seconds, and what is newer
  struct Seen {
    std::uint64_t count;
    Clock::time_point at;
  };

  mutable std::mutex mutex_;
  std::deque<Seen> seen_;
};

}  // namespace tandem::internal::ps
