#include "strategy/replica_pool.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <torch/torch.h>

#include <string>

#include "strategy/replica_random.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

thread_local bool is_replica_thread = false;

// OpenBLAS built on plain threads has one count for the whole process and would give each replica every core;
// built on OpenMP it follows the count of the calling thread.
void tame_blas() {
  constexpr int kPlainThreads = 1;
  const auto parallel = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_parallel"));
  const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (parallel && set_threads && parallel() == kPlainThreads) set_threads(1);
}

// A step frees the activations it made, and the next one makes the same again. By default glibc hands such
// large blocks back to the system each time and takes page faults to get them anew: a tenth of a ResNet-20
// step. These let it keep them. They hold for the whole process and only ever cost memory that a step had in
// use before.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargest = 32 << 20;  // that glibc takes from its pools at all
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 2 * kLargest);
#endif
}

// The error to report: a replica that was only woken because another failed has nothing to say.
std::exception_ptr first_cause(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) {
    try {
      std::rethrow_exception(error);
    } catch (const MeetingAborted&) {
    } catch (...) {
      return error;
    }
  }
  return errors.empty() ? nullptr : errors.front();
}

}  // namespace

ReplicaPool::ReplicaPool(int replicas, int threads_per_replica)
    : threads_per_replica_(threads_per_replica), meeting_(replicas) {
  tame_blas();
  keep_freed_memory();
  for (int replica = 0; replica < replicas; ++replica) {
    threads_.emplace_back([this, replica] { work(replica); });
    pthread_setname_np(threads_.back().native_handle(), ("replica-" + std::to_string(replica)).c_str());
  }
}

ReplicaPool::~ReplicaPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  job_ready_.notify_all();
  for (auto& thread : threads_) thread.join();
}

bool ReplicaPool::on_replica_thread() {
  return is_replica_thread;
}

void ReplicaPool::run(const Job& job) {
  if (is_replica_thread) {
    throw FailedPrecondition(
        "run() was called inside run(): a replica cannot start replicas; call it from outside");
  }
  std::unique_lock lock(mutex_);
  errors_.clear();
  meeting_.reset();
  job_ = &job;
  running_ = size();
  ++job_number_;
  job_ready_.notify_all();
  // No deadline: a step takes as long as the model needs. What replicas wait for inside has its own notices.
  job_done_.wait(lock, [&] { return running_ == 0; });
  job_ = nullptr;
  if (const auto error = first_cause(errors_)) std::rethrow_exception(error);
}

void ReplicaPool::work(int replica) {
  is_replica_thread = true;
  // The count is this thread's own, but a thread's first look at it fetches the process-wide default: look
  // first, then set.
  at::get_num_threads();
  at::set_num_threads(threads_per_replica_);
  RandomScope random;
  std::uint64_t done = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    job_ready_.wait(lock, [&] { return stopping_ || job_number_ != done; });
    if (stopping_) return;
    done = job_number_;
    lock.unlock();
    perform(replica, random);
    lock.lock();
    if (--running_ == 0) job_done_.notify_all();
  }
}

void ReplicaPool::perform(int replica, RandomScope& random) {
  try {
    job_->fn(replica, random);
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      errors_.push_back(std::current_exception());
    }
    meeting_.abort();
  }
  meeting_.leave(replica);
}

}  // namespace tandem::internal
