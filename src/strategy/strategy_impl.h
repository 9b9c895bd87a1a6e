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

class ClosureHost;
class Updater;
struct MeetingPlace;
struct OptimizerSpec;

struct StrategySetup {
  std::string name;
  std::vector<Device> devices;
  int threads_per_replica = 0;  // 0: the usable cores divided by the replicas
  std::shared_ptr<CrossDeviceOps> cross_device_ops;
  Placement placement = Placement::kMirrored;
  std::unique_ptr<SyncGroup> tasks = {};  // null where there is one task, or tasks are not in step
  // Where tasks share the work without collectives (parameter servers): how many, which one this is, and
  // whether their replicas are in sync.
  int workers = 1;
  int worker = 0;
  bool workers_in_sync = false;
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
  int num_replicas_in_sync() const {
    return num_local_replicas() * (setup_.workers_in_sync ? setup_.workers : num_tasks());
  }
  // Of this process's first replica, in the sync group.
  int first_replica() const {
    return num_local_replicas() * (setup_.tasks             ? setup_.tasks->rank()
                                   : setup_.workers_in_sync ? setup_.worker
                                                            : 0);
  }
  // Tasks that share the input, and which one this is. Without tasks() they cannot agree on anything about
  // it.
  int num_input_pipelines() const { return setup_.tasks ? setup_.tasks->size() : setup_.workers; }
  int input_pipeline() const { return setup_.tasks ? setup_.tasks->rank() : setup_.worker; }
  bool workers_in_sync() const { return setup_.workers_in_sync; }
  // Null where there is one task.
  SyncGroup* tasks() const { return setup_.tasks.get(); }
  bool is_chief() const { return setup_.tasks ? setup_.tasks->is_chief() : setup_.worker == 0; }
  // Whether this task saves and restores what it does with all others, or alone. Where tasks train without
  // collectives the chief does, and the others get its result from where the variables live.
  bool takes_part_in_saving() const { return setup_.tasks || is_chief(); }
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

  // Whether tables live outside this process, so that modules made in its scope need no room for them.
  virtual bool has_remote_tables() const { return false; }

  // What a ClusterCoordinator stands on; null for a strategy that has none.
  virtual ClosureHost* closure_host() { return nullptr; }

  // Something that waits for the only model there will be, and returns true when it waits no more. Where
  // steps begin with values from elsewhere it is asked before each, so that already a custom loop's first one
  // does.
  void add_late_binder(std::function<bool()> binder) { late_binders_.push_back(std::move(binder)); }

  // Every copy of every variable holds what a step is to begin with.
  virtual void settle_variables();

  // A training has come to its end on this task. Where tasks are not in step, the chief waits for the others.
  virtual void end_training() {}
  // Steps of trainings before this one, where steps are counted by all tasks together; see
  // Updater::global_step().
  virtual std::int64_t steps_before() const { return 0; }

  // The variables created under this strategy that still live, for an optimizer that was not told which to
  // update.
  void add_variables(const std::shared_ptr<Variables>& variables);
  std::vector<std::shared_ptr<Variables>> variables();

 protected:
  // A step is over, on all replicas.
  virtual void count_run(const DistributedBatch* batch);
  MeetingPlace meeting_place();
  void ask_late_binders() {
    std::erase_if(late_binders_, [](const auto& binder) { return binder(); });
  }

 private:
  void check_all_replicas_meet(const char* what) const;
  // On each replica's thread: one call of a step.
  void run_replica(int local, RandomScope& random, const DistributedBatch* batch,
                   const std::function<void(ReplicaContext&)>& fn);
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
  std::vector<std::function<bool()>> late_binders_;
};

}  // namespace tandem::internal
