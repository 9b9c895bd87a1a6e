#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/meeting.h"

namespace tandem::internal {

class RandomScope;

// The replica threads of one process: made once, kept for the life of the strategy. Each has its own count of
// intra-op threads and its own random numbers.
class ReplicaPool {
 public:
  // Threads are started here and named after their replica.
  ReplicaPool(int replicas, int threads_per_replica);
  ~ReplicaPool();

  struct Job {
    std::function<void(int replica, RandomScope& random)> fn;
  };

  // Runs the job once on every thread and waits for all. If some throw, the others are stopped at their next
  // collective and the first error is rethrown. Throws FailedPrecondition when called from a replica thread.
  void run(const Job& job);

  // Where the replicas meet inside a job.
  Meeting& meeting() { return meeting_; }

  int size() const { return static_cast<int>(threads_.size()); }
  int threads_per_replica() const { return threads_per_replica_; }

  // Whether the calling thread is a replica of any pool.
  static bool on_replica_thread();

 private:
  void work(int replica);
  void perform(int replica, RandomScope& random);

  const int threads_per_replica_;
  Meeting meeting_;

  std::mutex mutex_;
  std::condition_variable job_ready_;
  std::condition_variable job_done_;
  const Job* job_ = nullptr;
  std::uint64_t job_number_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::vector<std::exception_ptr> errors_;  // in the order of their throwing

  std::vector<std::thread> threads_;
};

}  // namespace tandem::internal
