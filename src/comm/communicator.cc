#include "tandem/communicator.h"

#include <fmt/format.h>
#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "comm/choose_algorithm.h"
#include "comm/engine.h"
#include "tandem/error.h"
#include "trace/recorder.h"

namespace tandem {

namespace internal {

struct PendingState {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;

  void finish(std::exception_ptr with) {
    {
      const std::lock_guard lock(mutex);
      done = true;
      error = std::move(with);
    }
    changed.notify_all();
  }
};

// Runs operations one after the other, in the order of the calls: on the caller's thread if it waits anyway
// and nothing is under way, else on a thread of its own.
struct CommunicatorImpl {
  CommunicatorImpl(std::unique_ptr<Engine> with, CommunicationOptions chosen)
      : engine(std::move(with)), options(std::move(chosen)) {}

  ~CommunicatorImpl() {
    bool unfinished = false;
    {
      const std::lock_guard lock(mutex);
      unfinished = busy || !queue.empty();
      stopping = true;
    }
    if (unfinished) abort("the communicator was destroyed", {});
    changed.notify_all();
    if (thread.joinable()) thread.join();
  }

  struct Job {
    Operation operation;
    std::shared_ptr<PendingState> pending;
  };

  std::shared_ptr<PendingState> enqueue(Operation operation) {
    auto pending = std::make_shared<PendingState>();
    {
      const std::lock_guard lock(mutex);
      queue.push_back({std::move(operation), pending});
      if (!thread.joinable()) {
        thread = std::thread([this] { work(); });
        pthread_setname_np(thread.native_handle(), "collectives");
      }
    }
    changed.notify_all();
    return pending;
  }

  void run(Operation operation) {
    {
      std::unique_lock lock(mutex);
      if (busy || !queue.empty()) {
        lock.unlock();
        wait(*enqueue(std::move(operation)));
        return;
      }
      busy = true;
    }
    const std::exception_ptr error = perform(operation);
    idle();
    if (error) std::rethrow_exception(error);
  }

  // Ends with the operation, which the loss of a member, its deadline or abort() ends if nothing else does.
  static void wait(PendingState& pending) {
    std::unique_lock lock(pending.mutex);
    pending.changed.wait(lock, [&] { return pending.done; });
    if (pending.error) std::rethrow_exception(pending.error);
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return (!busy && !queue.empty()) || (stopping && queue.empty()); });
      if (queue.empty()) return;
      const Job job = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      const std::exception_ptr error = perform(job.operation);
      lock.lock();
      busy = false;  // before anybody hears of it: who has waited may destroy this at once
      lock.unlock();
      job.pending->finish(error);
      lock.lock();
    }
  }

  void idle() {
    {
      const std::lock_guard lock(mutex);
      busy = false;
    }
    changed.notify_all();
  }

  std::exception_ptr perform(Operation& operation) {
    {
      const std::lock_guard lock(mutex);
      if (failure) return failure;
    }
    if (options.timeout) operation.deadline = Operation::Clock::now() + *options.timeout;
    const TraceSpan span(operation.name.c_str());
    try {
      engine->run(operation);
      return nullptr;
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      return failure;
    }
  }
  std::exception_ptr perform(const Operation& operation) {
    Operation copy = operation;
    return perform(copy);
  }

  void abort(const std::string& reason, std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex);
      if (failure) return;
      failure = error ? std::move(error) : std::make_exception_ptr(Aborted(reason));
    }
    engine->abort(reason);
  }

  AllReduceAlgorithm algorithm_for(const Elements& data) const {
    if (options.algorithm != AllReduceAlgorithm::kAuto) return options.algorithm;
    if (options.implementation != CommunicationImplementation::kAuto) return AllReduceAlgorithm::kRing;
    return choose_algorithm(data.bytes(), engine->size(), engine->several_hosts());
  }

  const std::unique_ptr<Engine> engine;
  const CommunicationOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> queue;
  bool busy = false;
  bool stopping = false;
  std::exception_ptr failure;  // that every later call throws
  std::thread thread;          // started by the first call that does not wait
};

const char* operation_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllReduce:
      return "all_reduce";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kReduceScatter:
      return "reduce_scatter";
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kSend:
      return "send";
    case OperationKind::kReceive:
      return "receive";
  }
  return "an unknown operation";
}

std::pair<std::int64_t, std::int64_t> scattered_share(std::int64_t count, int rank, int size) {
  const std::int64_t each = count / size;
  const std::int64_t larger = count % size;
  const std::int64_t begin = rank * each + std::min<std::int64_t>(rank, larger);
  return {begin, begin + each + (rank < larger ? 1 : 0)};
}

}  // namespace internal

using internal::Operation;
using internal::OperationKind;

std::size_t element_size(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return 1;
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kInt32:
    case ElementType::kFloat32:
      return 4;
    case ElementType::kInt64:
    case ElementType::kFloat64:
      return 8;
  }
  return 1;
}

const char* element_name(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kBfloat16:
      return "bfloat16";
  }
  return "unknown elements";
}

CommunicationOptions CommunicationOptions::merge(const CommunicationOptions& call) const {
  const CommunicationOptions defaults;
  CommunicationOptions merged = *this;
  const auto take = [&](auto CommunicationOptions::*field) {
    if (call.*field != defaults.*field) merged.*field = call.*field;
  };
  take(&CommunicationOptions::bytes_per_pack);
  take(&CommunicationOptions::timeout);
  take(&CommunicationOptions::implementation);
  take(&CommunicationOptions::algorithm);
  take(&CommunicationOptions::wire_format);
  take(&CommunicationOptions::engine);
  return merged;
}

void Pending::wait() const {
  internal::CommunicatorImpl::wait(*state_);
}

void Pending::wait(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(state_->mutex);
  if (!state_->changed.wait_for(lock, timeout, [&] { return state_->done; })) {
    throw DeadlineExceeded(
        fmt::format("a collective took longer than the {} ms that were waited for it", timeout.count()));
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Pending::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

Communicator::Communicator(std::unique_ptr<internal::Engine> engine, CommunicationOptions options)
    : impl_(std::make_unique<internal::CommunicatorImpl>(std::move(engine), std::move(options))) {}

Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const {
  return impl_->engine->rank();
}
int Communicator::size() const {
  return impl_->engine->size();
}
std::string Communicator::engine() const {
  return impl_->engine->name();
}
const CommunicationOptions& Communicator::options() const {
  return impl_->options;
}

Pending Communicator::all_reduce_async(const std::string& name, Elements data) {
  return Pending(impl_->enqueue({.kind = OperationKind::kAllReduce,
                                 .name = name,
                                 .data = data,
                                 .algorithm = impl_->algorithm_for(data)}));
}

void Communicator::all_reduce(const std::string& name, Elements data) {
  impl_->run({.kind = OperationKind::kAllReduce,
              .name = name,
              .data = data,
              .algorithm = impl_->algorithm_for(data)});
}

void Communicator::broadcast(const std::string& name, Elements data, int root) {
  impl_->run({.kind = OperationKind::kBroadcast, .name = name, .data = data, .root = root});
}

void Communicator::reduce(const std::string& name, Elements data, int root) {
  impl_->run({.kind = OperationKind::kReduce, .name = name, .data = data, .root = root});
}

void Communicator::all_gather(const std::string& name, Elements mine, void* all) {
  impl_->run({.kind = OperationKind::kAllGather, .name = name, .data = mine, .gathered = all});
}

std::pair<std::int64_t, std::int64_t> Communicator::reduce_scatter(const std::string& name, Elements data) {
  impl_->run({.kind = OperationKind::kReduceScatter, .name = name, .data = data});
  return internal::scattered_share(data.count, rank(), size());
}

void Communicator::barrier(const std::string& name) {
  impl_->run({.kind = OperationKind::kBarrier, .name = name});
}

void Communicator::send(const std::string& name, Elements data, int to) {
  impl_->run({.kind = OperationKind::kSend, .name = name, .data = data, .root = to});
}

void Communicator::receive(const std::string& name, Elements data, int from) {
  impl_->run({.kind = OperationKind::kReceive, .name = name, .data = data, .root = from});
}

void Communicator::abort(const std::string& reason, std::exception_ptr error) {
  impl_->abort(reason, std::move(error));
}

Traffic Communicator::traffic() const {
  return impl_->engine->traffic();
}

}  // namespace tandem
