#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bell.h"
#include "ps/closure_dispatcher.h"
#include "ps/closure_queue.h"
#include "tandem/error.h"

namespace tandem::internal::ps {

struct ClosureHandle::State {
  std::uint64_t closure = 0;
  std::string name = {};                         // "closure 17 (train_step)"
  std::shared_ptr<const std::string> call = {};  // as it travels; none once it is over
  int runs = 0;                                  // that were begun

  bool over = false;
  std::string result = {};
  std::exception_ptr error = {};
};

// What the thread that schedules closures, the threads that hand them to workers and those that wait for
// results share: the queue, and what is known of each worker. Every call locks it.
class ClosureBoard {
 public:
  using Clock = std::chrono::steady_clock;
  using State = ClosureHandle::State;

  explicit ClosureBoard(ClosureDispatcherOptions options);

  const ClosureDispatcherOptions& options() const { return options_; }

  // For those who schedule and wait; see ClosureDispatcher and ClosureHandle.

  void expect_function(const std::string& name);
  std::shared_ptr<State> schedule(const std::string& function, const std::string& arguments);
  void join();
  bool done();
  bool is_over(const State& state) const;
  const std::string& wait(const State& state);
  int ready_workers() const;
  // Cancels all that is not over; no worker gets any more, and all are told: well, or because of a failure.
  void stop(const std::string& failure);

  // For the thread of a worker.

  bool stopped() const { return stopped_; }
  std::string farewell() const;
  // Rung when there may be something to take, and at the end.
  const Bell& bell(int worker) const { return seats_[static_cast<std::size_t>(worker)].bell; }

  // It serves, and has these functions. If it lacks one it gets no closures: refusal() says why.
  void set_ready(int worker, std::vector<std::string> functions);
  std::optional<std::string> refusal(int worker) const;
  // It is not there, or not any more; what it ran is to be run again.
  void set_gone(int worker, const std::string& why);

  struct Job {
    std::uint64_t closure = 0;
    std::uint64_t settled_below = 0;
    std::shared_ptr<const std::string> call = {};
  };
  // The next closure for a worker that is ready and has none.
  std::optional<Job> take(int worker);
  // What became of it.
  void succeed(int worker, std::string result);
  void fail(int worker, ErrorCode code, const std::string& text);

 private:
  struct Seat {
    Bell bell = {};
    bool ready = false;
    bool was_ready = false;  // once
    std::string why = "not reached yet";
    std::set<std::string> functions = {};
    std::optional<std::string> refusal = {};
  };

  Seat& seat(int worker) { return seats_[static_cast<std::size_t>(worker)]; }
  const std::string& name(int worker) const { return options_.workers[static_cast<std::size_t>(worker)]; }

  // All of these with the lock held.
  template <typename Over>
  void wait(std::unique_lock<std::mutex>& lock, Over over);
  void check_somebody_is_there(Clock::time_point& say_at) const;
  void throw_failure();
  void check_functions(int worker);
  void keep_failure(const std::exception_ptr& error, const std::string& text);
  void settle(std::uint64_t closure, std::string result, const std::exception_ptr& error);
  void cancel(std::uint64_t closure, const std::string& why);
  void wake_one();

  const ClosureDispatcherOptions options_;
  std::vector<Seat> seats_;
  std::atomic<bool> stopped_{false};

  mutable std::mutex mutex_;  // of what is below, and of the seats, save for their bells
  std::condition_variable changed_;
  ClosureQueue queue_;
  std::unordered_map<std::uint64_t, std::shared_ptr<State>> open_;
  std::set<std::string> expected_;
  std::exception_ptr failure_;  // to be thrown once nothing is under way
  std::string failure_text_;
  std::string farewell_;
  std::set<int> idle_;  // ready, and nothing to do when it last asked
  int ready_ = 0;
  Clock::time_point none_ready_since_ = Clock::now();
};

}  // namespace tandem::internal::ps
