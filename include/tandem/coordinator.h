#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/dataset.h"
#include "tandem/input_context.h"
#include "tandem/replica.h"
#include "tandem/strategy.h"

namespace tandem {

namespace internal {
class ClosureHost;
}

// Arguments and results of closures: any tensors that a checkpoint could hold, of any shape, 1 GiB together.
// They travel as they lie in memory, and arrive on the CPU.
using Values = std::vector<at::Tensor>;

// What a function knows of the worker that runs it. Valid during that call only.
class ClosureContext {
 public:
  // From 0.
  int worker() const { return worker_; }
  int num_workers() const { return num_workers_; }

  // The next batch of this worker's own pass over a dataset of create_per_worker_dataset(), cut into pieces
  // for its replicas. Throws OutOfRange at the end of the data, NotFound if there is no dataset of that name.
  DistributedBatch next(const std::string& dataset);
  // Nothing at the end of the data.
  std::optional<DistributedBatch> next_as_optional(const std::string& dataset);

 private:
  friend class ClusterCoordinator;
  using Next = std::function<std::optional<DistributedBatch>(const std::string& dataset)>;
  ClosureContext(int worker, int num_workers, Next next)
      : worker_(worker), num_workers_(num_workers), next_(std::move(next)) {}

  int worker_;
  int num_workers_;
  Next next_;
};

// The result of a closure, which may not be there yet. A value: a shared handle, good on any thread and also
// after its coordinator is gone. It is no tensor, so it cannot be the argument of another closure: fetch()
// it.
class RemoteValue {
 public:
  RemoteValue() = default;

  // Whether fetch() returns, or throws, at once.
  bool done() const;

  // Blocks until the closure is over. Throws the closure's error; Cancelled if it was not run because another
  // one failed; Unavailable as ClusterCoordinator::join(); FailedPrecondition if this is the result of
  // nothing.
  Values fetch() const;

 private:
  friend class ClusterCoordinator;
  struct Impl;
  explicit RemoteValue(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

struct ClusterCoordinatorOptions {
  // So many closures may wait to be begun; schedule() blocks while there are as many.
  std::size_t queue_size = 262'144;

  // A worker that does not answer for so long is taken for lost; it answers also while it computes.
  std::chrono::milliseconds worker_timeout{10'000};

  // How long the coordinator waits while there is no worker at all ...
  std::chrono::milliseconds all_workers_timeout{3'600'000};
  // ... and a worker, while nothing is heard of the coordinator.
  std::chrono::milliseconds coordinator_timeout{300'000};

  // Worker w begins w times this later than worker 0, so that not all of them pull and push at once.
  std::chrono::milliseconds stagger{0};
};

// TensorFlow's ClusterCoordinator: one task, the chief, decides what is computed; the workers compute it.
//
// Every task runs the same program, and registers the same functions and datasets under the same names. A
// worker then calls serve(), and runs what the coordinator schedules:
//
//   tandem::ClusterCoordinator coordinator(strategy);
//   coordinator.add_function("train_step", [&](tandem::ClosureContext& context, const tandem::Values&) {
//     return tandem::Values{at::scalar_tensor(model.train_step(context.next("train")))};
//   });
//   coordinator.create_per_worker_dataset("train", [&](const tandem::InputContext&) { return train; });
//   if (!coordinator.is_coordinator()) return coordinator.serve();
//   tandem::RemoteValue loss;
//   for (int i = 0; i < 1000; ++i) loss = coordinator.schedule("train_step");
//   coordinator.join();
//
// A closure is run by whichever worker is free. If that worker is lost (its process dies, its machine cannot
// be reached) another one runs the closure, and the caller sees nothing of it: a closure runs at least once,
// perhaps partly, perhaps twice. What it pushes to the parameter servers counts once per variable all the
// same. A worker that comes back serves again. docs/coordinator.md says more.
//
// Not thread-safe: one thread schedules and joins.
class ClusterCoordinator {
 public:
  using Function = std::function<Values(ClosureContext& context, const Values& arguments)>;

  // Throws InvalidArgument for a strategy that is no ParameterServerStrategy with a coordinator.
  explicit ClusterCoordinator(const Strategy& strategy, ClusterCoordinatorOptions options = {});
  // The coordinator's: what was not joined is cancelled, and the workers are told that there is no more to
  // do; or, if it is destroyed because of an exception, that the coordinator failed.
  ~ClusterCoordinator();
  ClusterCoordinator(const ClusterCoordinator&) = delete;
  ClusterCoordinator& operator=(const ClusterCoordinator&) = delete;

  // Whether this task schedules. The others serve().
  bool is_coordinator() const;

  // Under the same name on every task. On a worker it is called on the thread of serve(), one closure at a
  // time; what it captures is the worker's own. Throws InvalidArgument for a name that is taken or empty.
  void add_function(const std::string& name, Function function);

  // Each worker passes over a dataset of its own: make(context) is called on the worker when a function first
  // asks for a batch, and again in a process that takes the worker's place. An element is the batch of one
  // step of one worker. Worker w of W gets input_pipeline_id w of W; unless make() gives each its share, or a
  // seed to a shuffle, all workers read the same data, each in an order of its own. Throws InvalidArgument
  // for a name that is taken or empty.
  void create_per_worker_dataset(const std::string& name,
                                 std::function<Dataset(const InputContext& context)> make,
                                 IterateOptions options = {});

  // A worker's: runs closures until the coordinator is done. Throws Aborted if that one failed, Unavailable
  // if nothing is heard of it for coordinator_timeout, FailedPrecondition on the coordinator.
  void serve();

  // The rest is the coordinator's; on a worker it throws FailedPrecondition.

  // To be run by some worker, after those that were scheduled before have been begun. Does not wait, unless
  // the queue is full. Throws NotFound for a function that was not added; the error of an earlier closure, as
  // join() does.
  RemoteValue schedule(const std::string& function, const Values& arguments = {});

  // Returns when every closure is over. If one of them threw, then those that had not begun were cancelled,
  // and what it threw comes out of the next schedule(), join() or done(), once, with the name of the worker;
  // after that nothing is under way, and the coordinator can be used as before. Throws Unavailable, naming
  // the workers, if there has been none for all_workers_timeout; the closures stay then.
  void join();
  // Whether every closure is over. Does not wait, and throws the same error.
  bool done();
  // value.fetch()
  Values fetch(const RemoteValue& value) const { return value.fetch(); }

  // For tests: over any host, which must outlive it.
  ClusterCoordinator(const Strategy& strategy, internal::ClosureHost& host,
                     ClusterCoordinatorOptions options = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
