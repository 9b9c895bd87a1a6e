#pragma once

#include <chrono>
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/cluster_resolver.h"
#include "tandem/communicator.h"
#include "tandem/dataset.h"
#include "tandem/device.h"
#include "tandem/input_context.h"
#include "tandem/replica.h"
#include "tandem/task_server.h"

namespace tandem {

class Strategy;

// Makes a strategy current on this thread while it lives; see Strategy::scope(). Destroy in reverse order of
// creation, on the thread that made it.
class Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();

 private:
  friend class Strategy;
  explicit Scope(const Strategy& strategy);
};

// A dataset, handed out as one piece per replica.
//
// Where all replicas see the same global batches (one task, or DATA sharding) the split is TensorFlow's: a
// batch of B rows is cut into pieces of ceil(B / replicas); the last replicas may get fewer rows, or none.
// The pieces are views of the batch. Where each task has elements of its own (FILE, HINT and OFF sharding,
// distribute_from_function()) it takes one per replica and step; the tasks then agree in each step how many
// rows it has in all, so next() is a collective. A replica that has nothing left gets batches without rows
// until nobody has any.
class DistributedDataset {
 public:
  // Throws OutOfRange at the end of the data.
  DistributedBatch next();
  // Nothing at the end of the data.
  std::optional<DistributedBatch> next_as_optional();

  // How many elements this task has been handed: what to save after a step is committed, and to seek() to
  // after a restart. Elements are global batches, or this task's own.
  DatasetPosition position() const { return iterator_.position(); }
  void seek(DatasetPosition position);

  // For the rooms above: every row of the dataset, over the replicas of this task alone, where tasks have no
  // collectives to share it with. Elsewhere what Strategy::distribute() gives.
  static DistributedDataset whole(const Strategy& strategy, const Dataset& dataset, IterateOptions options);

  // For the rooms above: whether elements are global batches, and not this task's own.
  bool holds_global_batches() const { return holds_ == Holds::kGlobalBatches; }

 private:
  friend class Strategy;
  // Global batches, of which this task's replicas take their part; batches of which they take all; their
  // pieces.
  enum class Holds { kGlobalBatches, kOwnBatches, kPieces };
  DistributedDataset(std::shared_ptr<internal::StrategyImpl> strategy, DatasetIterator iterator, Holds holds);

  std::optional<DistributedBatch> cut_batch(int replicas, int first_replica);
  std::optional<DistributedBatch> take_pieces();

  std::shared_ptr<internal::StrategyImpl> strategy_;
  DatasetIterator iterator_;
  Holds holds_;
  std::optional<Batch> example_;  // without rows
  bool ended_ = false;
};

// For whom distribute_values_from_function() makes a value.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

// Decides where variables live, how a batch is split and how gradients meet. It knows nothing of models.
//
// A Strategy is a value: a shared handle. Built by one of its kinds (OneDeviceStrategy, MirroredStrategy,
// ...); default-constructed it is TensorFlow's default strategy: one replica, on the first device. Not
// thread-safe: one run() at a time. Its replica threads end with its last handle.
//
// Where several tasks train in sync, each runs the same program, and what combines values of all replicas is
// a collective: every task must call it, in the same order.
class Strategy {
 public:
  Strategy();

  // "one_device", "mirrored", ...: the words of --distribution_strategy.
  std::string name() const;
  int num_replicas_in_sync() const;
  // Whether this task is the one that writes checkpoints and summaries and prints progress: TensorFlow's
  // extended.should_checkpoint and should_save_summary. Always true where there is one task.
  bool is_chief() const;
  // What the tasks talk through; null where there is one.
  Communicator* communicator() const;
  // The devices of this process's replicas, in replica order.
  const std::vector<Device>& worker_devices() const;
  // Intra-op threads of each replica. Results are bitwise equal only for equal numbers.
  int threads_per_replica() const;

  // Inside, what is created (Model, optimizers, metrics) belongs to this strategy. Re-entering the same
  // strategy nests; entering another throws FailedPrecondition.
  [[nodiscard]] Scope scope() const { return Scope(*this); }
  template <std::invocable F>
  auto scope(F&& fn) const {
    const Scope inside(*this);
    return std::forward<F>(fn)();
  }

  // Calls fn(ReplicaContext&, args...) once per local replica, each on its own thread and device, and waits
  // for all. A PerReplica argument becomes that replica's component; others are passed unchanged (by const
  // reference, to all). Returns PerReplica<Result>, or void. An exception in one replica stops the others at
  // their next collective and is rethrown here once.
  template <typename F, typename... Args>
  auto run(F&& fn, const Args&... args) const;

  // For train_steps() (training_loop.h): fn(replica, piece) on each replica's thread for up to `steps`
  // batches, without coming back in between. Returns for how many.
  std::int64_t run_steps(DistributedDataset& batches, std::int64_t steps,
                         const std::function<void(ReplicaContext&, const Batch&)>& fn) const;

  // Combines a value across all replicas of all tasks, in replica order; with an axis, along that axis too.
  // The mean along an axis divides the sum of all by the number of all: never a mean of means. The result is
  // on the host, the same on every task.
  at::Tensor reduce(ReduceOp op, const PerReplica<at::Tensor>& value,
                    std::optional<std::int64_t> axis = {}) const;
  double reduce(ReduceOp op, const PerReplica<double>& value) const;

  // All replicas' values one after the other along an axis, in replica order, on the host; their sizes may
  // differ along that axis only. Throws InvalidArgument for a scalar or a sparse tensor.
  at::Tensor gather(const PerReplica<at::Tensor>& value, std::int64_t axis = 0) const;

  // Global batches in, pieces out. Several tasks share the data as the dataset's auto_shard_policy() says; a
  // line in the log tells what was chosen. Throws InvalidArgument for a dataset without batch().
  DistributedDataset distribute(const Dataset& dataset, IterateOptions options = {}) const;

  // make(context) is called once on each task and returns its own dataset of per-replica batches, already
  // sharded: nothing is cut or shared out, each step takes one element for each replica of the task.
  DistributedDataset distribute_from_function(const std::function<Dataset(const InputContext&)>& make,
                                              IterateOptions options = {}) const;

  // fn(ValueContext) for each local replica, on this thread: an argument for run().
  template <std::invocable<ValueContext> F>
  auto distribute_values_from_function(F&& fn) const {
    std::vector<std::invoke_result_t<F&, ValueContext>> values;
    for (std::size_t local = 0; local < worker_devices().size(); ++local) {
      values.push_back(fn(ValueContext{first_replica() + static_cast<int>(local), num_replicas_in_sync()}));
    }
    return PerReplica(std::move(values));
  }

  // Random numbers inside run() (dropout) are a function of (seed, step, replica). Each run() advances the
  // step by one; this sets both, e.g. after a restart.
  void seed_random(std::uint64_t seed, std::int64_t step = 0) const;

  // For the rooms above.
  internal::StrategyImpl& impl() const { return *impl_; }
  friend bool operator==(const Strategy& a, const Strategy& b) { return a.impl_ == b.impl_; }

 protected:
  explicit Strategy(std::shared_ptr<internal::StrategyImpl> impl) : impl_(std::move(impl)) {}

 private:
  friend Strategy get_strategy();
  friend class ReplicaContext;

  int first_replica() const;

  void run_on_replicas(const std::function<void(ReplicaContext&)>& fn, const DistributedBatch* batch) const;

  std::shared_ptr<internal::StrategyImpl> impl_;
};

// The strategy whose scope this thread is in, or the default strategy.
Strategy get_strategy();
bool has_strategy();
// False only on a replica's thread, inside run().
bool in_cross_replica_context();

struct ParameterServerFlags {
  std::optional<int> max_staleness = {};
  std::optional<int> aggregate = {};
  bool reject_not_finite = false;
  // "round_robin", or "greedy": by bytes.
  std::string placement = "round_robin";
  // Variables are cut into parts of at least so many bytes, for as many ps tasks as there are. 0: not at all.
  std::int64_t min_shard_bytes = 0;
  std::string snapshot_dir = {};
  std::chrono::milliseconds snapshot_interval{10'000};
  std::uint64_t snapshot_updates = 1000;
  std::chrono::milliseconds ps_outage = std::chrono::minutes(5);
  bool also_ps = false;
};

struct StrategyFlags {
  // 0: as DESIGN says for the strategy (mirrored: every visible GPU, else one CPU device per core, 8 at most;
  // multi_worker_mirrored: every visible GPU, else one CPU device).
  int num_gpus = 0;
  int num_cpus = 0;
  // 0: the usable cores divided by the replicas on this machine.
  int threads_per_replica = 0;

  // For strategies of several tasks; see MultiWorkerMirroredOptions.
  ClusterFlags cluster = {};
  CommunicationOptions communication = {};
  ServerOptions server = {};
  int data_port = 0;
  std::optional<std::uint64_t> seed = {};

  // For parameter servers; see ParameterServerOptions.
  ParameterServerFlags parameter_server = {};
};

// What serves on a ps task with the same flags, until the training is over: true. On any other task false, at
// once.
bool serve_from_flags(const std::string& name, const StrategyFlags& flags);

// The strategy that a --distribution_strategy flag names: "off" or "one_device", "mirrored",
// "central_storage", "multi_worker_mirrored", "parameter_server", "tpu". Throws InvalidArgument for a name
// that is none, and what the strategy's own constructor throws.
Strategy strategy_from_flag(const std::string& name, StrategyFlags flags = {});

namespace internal {

template <typename T>
const T& component(const T& value, int) {
  return value;
}
template <typename T>
const T& component(const PerReplica<T>& value, int replica) {
  return value[static_cast<std::size_t>(replica)];
}
inline const Batch& component(const DistributedBatch& value, int replica) {
  return value[static_cast<std::size_t>(replica)];
}

template <typename T>
const DistributedBatch* as_distributed_batch(const T& value) {
  if constexpr (std::same_as<T, DistributedBatch>) return &value;
  return nullptr;
}

}  // namespace internal

template <typename F, typename... Args>
auto Strategy::run(F&& fn, const Args&... args) const {
  const DistributedBatch* batch = nullptr;
  ((batch = batch ? batch : internal::as_distributed_batch(args)), ...);
  using Result = std::invoke_result_t<F&, ReplicaContext&, decltype(internal::component(args, 0))...>;
  if constexpr (std::is_void_v<Result>) {
    run_on_replicas(
        [&](ReplicaContext& replica) { fn(replica, internal::component(args, replica.local_id())...); },
        batch);
  } else {
    std::vector<std::optional<Result>> results(worker_devices().size());
    run_on_replicas(
        [&](ReplicaContext& replica) {
          results[static_cast<std::size_t>(replica.local_id())] =
              fn(replica, internal::component(args, replica.local_id())...);
        },
        batch);
    std::vector<Result> values;
    values.reserve(results.size());
    for (auto& result : results) values.push_back(std::move(*result));
    return PerReplica<Result>(std::move(values));
  }
}

template <typename F, typename... Args>
auto ReplicaContext::merge_call(F&& fn, const Args&... args) {
  using Result = std::invoke_result_t<F&, const Strategy&, PerReplica<Args>...>;
  using Arguments = std::tuple<const Args*...>;
  const Arguments mine(&args...);
  // The i-th argument of all replicas.
  const auto collect = []<std::size_t i>(const std::vector<const void*>& laid) {
    std::vector<std::remove_cvref_t<decltype(*std::get<i>(std::declval<Arguments>()))>> values;
    for (const void* each : laid) values.push_back(*std::get<i>(*static_cast<const Arguments*>(each)));
    return PerReplica(std::move(values));
  };
  const auto call = [&](const Strategy& strategy, const std::vector<const void*>& laid) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return fn(strategy, collect.template operator()<i>(laid)...);
    }
    (std::index_sequence_for<Args...>());
  };
  if constexpr (std::is_void_v<Result>) {
    merge(&mine,
          [&](const Strategy& strategy, const std::vector<const void*>& laid) -> std::shared_ptr<void> {
            call(strategy, laid);
            return nullptr;
          });
  } else {
    const auto result = std::static_pointer_cast<Result>(merge(
        &mine, [&](const Strategy& strategy, const std::vector<const void*>& laid) -> std::shared_ptr<void> {
          return std::make_shared<Result>(call(strategy, laid));
        }));
    return std::remove_cvref_t<decltype(internal::component(*result, 0))>(
        internal::component(*result, local_id()));
  }
}

// TensorFlow's experimental names, which are methods there, for programs that are carried over.
namespace experimental {

template <typename T>
const std::vector<T>& experimental_local_results(const Strategy&, const PerReplica<T>& value) {
  return value.values();
}
template <typename F>
auto experimental_distribute_values_from_function(const Strategy& strategy, F&& fn) {
  return strategy.distribute_values_from_function(std::forward<F>(fn));
}

template <typename F, typename... Args>
auto experimental_run(const Strategy& strategy, F&& fn, const Args&... args) {
  return strategy.run(std::forward<F>(fn), args...);
}
template <typename F, typename... Args>
auto experimental_run_v2(const Strategy& strategy, F&& fn, const Args&... args) {
  return strategy.run(std::forward<F>(fn), args...);
}

inline DistributedDataset experimental_distribute_dataset(const Strategy& strategy, const Dataset& dataset,
                                                          IterateOptions options = {}) {
  return strategy.distribute(dataset, options);
}
inline DistributedDataset experimental_distribute_datasets_from_function(
    const Strategy& strategy, const std::function<Dataset(const InputContext&)>& make,
    IterateOptions options = {}) {
  return strategy.distribute_from_function(make, options);
}

}  // namespace experimental
}  // namespace tandem
