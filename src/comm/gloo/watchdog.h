#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tandem::internal::gloo_tcp {

// Calls a function, once and from a thread of its own, if a deadline passes.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Watchdog(std::function<void()> bark) : bark_(std::move(bark)), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void set(Clock::time_point deadline) {
    const std::lock_guard lock(mutex_);
    deadline_ = deadline;
    if (deadline < sleeps_until_) changed_.notify_one();
  }
  void clear() { set(Clock::time_point::max()); }
  bool barked() const { return barked_; }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (Clock::now() >= deadline_) {
        barked_ = true;
        lock.unlock();
        bark_();
        return;
      }
      // A deadline that has been put off is noticed when its time comes: an operation that ends in time costs
      // no switch to this thread.
      sleeps_until_ = deadline_;
      if (deadline_ == Clock::time_point::max()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, deadline_);
      }
    }
  }

  const std::function<void()> bark_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point sleeps_until_ = Clock::time_point::max();
  bool stopping_ = false;
  std::atomic<bool> barked_{false};
  std::thread thread_;
};

}  // namespace tandem::internal::gloo_tcp
