#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "strategy/replica_pool.h"
#include "strategy/sync_group.h"
#include "strategy/variables.h"
#include "tandem/cross_device_ops.h"
#include "tandem/device.h"
#include "tandem/replica.h"

namespace tandem::internal {

class Updater;
struct OptimizerSpec;

struct StrategySetup {
  std::string name;
  std::vector<Device> devices;
  int threads_per_replica = 0;  // 0: the usable cores divided by the replicas
  std::shared_ptr<CrossDeviceOps> cross_device_ops;
  Placement placement = Placement::kMirrored;
  std::unique_ptr<SyncGroup> tasks = {};  // null where there is one task
  // For models that are not given one. All tasks have the same.
  std::optional<std::uint64_t> seed = {};
};

// Throws InvalidArgument for a number below 0.
void check_threads_per_replica(int threads);

// What stands behind a Strategy: the replica threads, and how gradients meet. The synchronous strategies
// differ only in their setup.
class StrategyImpl : public std::enable_shared_from_this<StrategyImpl> {
 public:
  explicit StrategyImpl(StrategySetup setup);
  virtual ~StrategyImpl();
  StrategyImpl(const StrategyImpl&) = delete;
  StrategyImpl& operator=(const StrategyImpl&) = delete;

  const std::string& name() const { return setup_.name; }
  const std::vector<Device>& devices() const { return setup_.devices; }
  int num_local_replicas() const { return static_cast<int>(setup_.devices.size()); }
  Placement placement() const { return setup_.placement; }
  int threads_per_replica() const { return pool_.threads_per_replica(); }
  int num_tasks() const { return setup_.tasks ? setup_.tasks->size() : 1; }
  int num_replicas_in_sync() const { return num_local_replicas() * num_tasks(); }
  // Of this process's first replica, in the sync group.
  int first_replica() const { return setup_.tasks ? setup_.tasks->rank() * num_local_replicas() : 0; }
  // Null where there is one task.
  SyncGroup* tasks() const { return setup_.tasks.get(); }
  bool is_chief() const { return !setup_.tasks || setup_.tasks->is_chief(); }
  const std::optional<std::uint64_t>& seed() const { return setup_.seed; }

  void run(const std::function<void(ReplicaContext&)>& fn, const DistributedBatch* batch);

  // The same for each batch that next() gives, `steps` at most, in one go: the replicas do not come back in
  // between. next() is called by one of them, in cross-replica context, when all are there. Returns for how
  // many.
  std::int64_t run_steps(std::int64_t steps, const std::function<std::optional<DistributedBatch>()>& next,
                         const std::function<void(ReplicaContext&, const Batch&)>& fn);
  void seed_random(std::uint64_t seed, std::int64_t step);

  // On each replica's thread: the sum over all replicas of all tasks, in place. First over those of this
  // task, in replica order.
  void all_reduce(int replica, at::Tensor& tensor);
  // Likewise: all replicas' tensors along an axis, and where this replica's begins.
  std::pair<at::Tensor, std::int64_t> all_gather(int replica, const at::Tensor& tensor, std::int64_t axis);
  // Likewise of this task's replicas: fn(what they lay down) is called once, in cross-replica context.
  using Merged = std::function<std::shared_ptr<void>(const std::vector<const void*>& laid)>;
  std::shared_ptr<void> merge(int replica, const void* mine, const Merged& fn);

  // What every replica of every task has, by replica in the sync group; `local` by local replica. All have
  // the same shape and dtype. On the CPU. In cross-replica context, a collective.
  std::vector<at::Tensor> gather(const std::string& name, const std::vector<at::Tensor>& local);
  std::vector<double> gather(const std::string& name, const std::vector<double>& local);

  // A line for the log, the first time that it is said.
  void log_once(const std::string& line);

  // Calls fn; an error in it stops the other tasks, which are told.
  template <typename Fn>
  auto or_stop_all(Fn fn) {
    try {
      return fn();
    } catch (...) {
      if (setup_.tasks) setup_.tasks->fail(std::current_exception());
      throw;
    }
  }

  Meeting& meeting() { return pool_.meeting(); }
  CrossDeviceOps& cross_device_ops() { return *setup_.cross_device_ops; }

  // The replica that runs on this thread, or null.
  static ReplicaContext* current_replica();

  // How an optimizer's step reaches these variables. While no replica computes.
  virtual std::unique_ptr<Updater> make_updater(std::shared_ptr<Variables> variables,
                                                const OptimizerSpec& optimizer);

  // The variables created under this strategy that still live, for an optimizer that was not told which to
  // update.
  void add_variables(const std::shared_ptr<Variables>& variables);
  std::vector<std::shared_ptr<Variables>> variables();

 private:
  // On each replica's thread: one call of a step.
  void run_replica(int local, RandomScope& random, const DistributedBatch* batch,
                   const std::function<void(ReplicaContext&)>& fn);
  void count_run(const DistributedBatch* batch);
  void check_pieces(const DistributedBatch& batch) const;

  StrategySetup setup_;
  ReplicaPool pool_;
  std::uint64_t random_seed_ = 0;
  std::int64_t step_ = 0;
  std::set<std::string> said_;
  at::Tensor summed_;              // over the tasks, for the other replicas to take
  std::vector<const void*> laid_;  // by replica, in merge()
  std::shared_ptr<void> merged_;
  std::vector<std::weak_ptr<Variables>> variables_;
};

}  // namespace tandem::internal
