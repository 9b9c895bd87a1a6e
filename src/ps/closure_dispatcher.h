#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/closure_queue.h"

namespace tandem::internal::ps {

class ClosureBoard;

// Where a worker's ClosureServer is found, and what proves that one may talk to it.
struct ClosureEndpoint {
  std::string address = {};  // "10.0.0.1:40123"
  std::string key = {};

  friend bool operator==(const ClosureEndpoint&, const ClosureEndpoint&) = default;
};

struct ClosureDispatcherOptions {
  // For messages: one name for each worker.
  std::vector<std::string> workers = {};

  // Where a worker is now: its newest process. Nothing if it is not there, and in `why` what is known of it.
  // Asked before each attempt to connect, by a thread for each worker; must not wait.
  std::function<std::optional<ClosureEndpoint>(int worker, std::string& why)> locate = {};

  std::string cluster_id = {};
  bool encrypt = false;

  // The number of the first closure. Parameter servers that have seen closures of an earlier coordinator take
  // only higher ones for new.
  std::uint64_t first_closure = 1;

  // schedule() waits while so many have not been begun.
  std::size_t queue_size = ClosureQueue::kCapacity;
  // A worker that does not answer for so long is lost.
  std::chrono::milliseconds worker_timeout{10'000};
  // How long calls wait while there is no worker at all.
  std::chrono::milliseconds all_workers_timeout{3'600'000};
  // Worker w begins w times this later than worker 0.
  std::chrono::milliseconds stagger{0};
};

// A closure that was scheduled. Good on any thread, also after the dispatcher is gone.
class ClosureHandle {
 public:
  struct State;
  ClosureHandle(std::shared_ptr<ClosureBoard> board, std::shared_ptr<State> state)
      : board_(std::move(board)), state_(std::move(state)) {}

  // Whether it is over.
  bool done() const;
  // Its result; blocks until it is over. Throws its error; Cancelled if it was never run to its end because
  // another one failed or the dispatcher is gone; Unavailable as join() does.
  const std::string& wait() const;

 private:
  std::shared_ptr<ClosureBoard> board_;
  std::shared_ptr<State> state_;
};

// The coordinator's end: hands closures to workers, each of which has a thread here that keeps the connection
// to it and gives it one closure after the other.
//
// A worker that is lost is nobody's error: its closure is run again, by whoever is free, and the worker may
// come back as another process. Closures therefore run at least once. Any other error of a closure cancels
// those that wait; once those under way are over, the next schedule(), join() or done() throws the first one,
// and all is as before.
//
// schedule(), join() and done() are for one thread.
class ClosureDispatcher {
 public:
  // Begins to connect.
  explicit ClosureDispatcher(ClosureDispatcherOptions options);
  // finish({}), unless it was called.
  ~ClosureDispatcher();
  ClosureDispatcher(const ClosureDispatcher&) = delete;

  // Every worker must have this function: one that has not is an error, as if a closure had failed, and gets
  // no closures.
  void expect_function(const std::string& name);

  // Returns at once, but waits while the queue is full. Throws InvalidArgument if the arguments are too long
  // (kMostClosureBytes); the error of an earlier closure; and Unavailable as join() does, if it waits.
  ClosureHandle schedule(const std::string& function, const std::string& arguments);

  // Until all closures are over. Throws the error of the first that failed; Unavailable, naming the workers,
  // if there has been none of them for all_workers_timeout (the closures stay: join() again waits again).
  void join();
  // Whether they are. Throws that error, too, once nothing is under way any more.
  bool done();

  // Cancels what is left and tells the workers that there is no more to do: well, or because the coordinator
  // failed, and how. A worker that is just busy hears it when it is done. Takes two seconds at most.
  void finish(const std::string& failure);

  // Workers that can take closures now.
  int ready_workers() const;

 private:
  class Worker;

  std::shared_ptr<ClosureBoard> board_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace tandem::internal::ps
