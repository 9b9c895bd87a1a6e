#include "strategy/strategy_impl.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "cluster/visible_cpus.h"
#include "strategy/replica_random.h"
#include "strategy/tensor_bytes.h"
#include "strategy/torch_device.h"
#include "strategy/updater.h"
#include "tandem/error.h"
#include "trace/recorder.h"

namespace tandem::internal {
namespace {

thread_local ReplicaContext* running_replica = nullptr;

// Sets the thread's replica for the length of one function.
class RunningReplica {
 public:
  explicit RunningReplica(ReplicaContext& replica) { running_replica = &replica; }
  ~RunningReplica() { running_replica = nullptr; }
  RunningReplica(const RunningReplica&) = delete;
  RunningReplica& operator=(const RunningReplica&) = delete;
};

// Takes the thread out of its replica for the length of one function.
class CrossReplica {
 public:
  CrossReplica() : replica_(running_replica) { running_replica = nullptr; }
  ~CrossReplica() { running_replica = replica_; }
  CrossReplica(const CrossReplica&) = delete;
  CrossReplica& operator=(const CrossReplica&) = delete;

 private:
  ReplicaContext* replica_;
};

int threads_for(const StrategySetup& setup) {
  check_threads_per_replica(setup.threads_per_replica);
  keep_to_visible_cpus();  // the replicas are started by this thread
  if (setup.threads_per_replica > 0) return setup.threads_per_replica;
  return std::max(1, usable_cores() / static_cast<int>(setup.devices.size()));
}

}  // namespace

void check_threads_per_replica(int threads) {
  if (threads >= 0) return;
  throw InvalidArgument(fmt::format(
      "threads_per_replica is {}: expected 1 or more, or 0 for an equal share of the cores", threads));
}

StrategyImpl::StrategyImpl(StrategySetup setup)
    : setup_(std::move(setup)),
      pool_(static_cast<int>(setup_.devices.size()), threads_for(setup_)),
      laid_(setup_.devices.size()) {}

StrategyImpl::~StrategyImpl() = default;

void StrategyImpl::check_pieces(const DistributedBatch& batch) const {
  if (static_cast<int>(batch.size()) == num_local_replicas()) return;
  throw InvalidArgument(
      fmt::format("the batch has {} pieces for {} replicas: it was distributed by another strategy",
                  batch.size(), num_local_replicas()));
}

void StrategyImpl::run_replica(int local, RandomScope& random, const DistributedBatch* batch,
                               const std::function<void(ReplicaContext&)>& fn) {
  const Device& device = setup_.devices[static_cast<std::size_t>(local)];
  ReplicaContext replica(*this, first_replica() + local, local, device);
  if (batch) {
    replica.local_rows_ = (*batch)[static_cast<std::size_t>(local)].rows();
    replica.global_rows_ = batch->global_rows();
  }
  // Workers that are not in sync draw numbers of their own all the same.
  random.reseed(seed_of_stream(seed_of_stream(random_seed_, static_cast<std::uint64_t>(step_)),
                               static_cast<std::uint64_t>(input_pipeline() * num_local_replicas() + local)));
  const c10::OptionalDeviceGuard guard(torch_device(device));
  const RunningReplica running(replica);
  const TraceSpan span("replica");
  fn(replica);
}

void StrategyImpl::count_run(const DistributedBatch* batch) {
  ++step_;
  if (setup_.tasks) setup_.tasks->ran(step_, batch ? batch->global_rows() : 0);
}

void StrategyImpl::run(const std::function<void(ReplicaContext&)>& fn, const DistributedBatch* batch) {
  if (batch) check_pieces(*batch);
  settle_variables();
  or_stop_all(
      [&] { pool_.run({[&](int local, RandomScope& random) { run_replica(local, random, batch, fn); }}); });
  count_run(batch);  // only here: a replica that calls run() is refused, and must not race to count it
}

std::int64_t StrategyImpl::run_steps(std::int64_t steps,
                                     const std::function<std::optional<DistributedBatch>()>& next,
                                     const std::function<void(ReplicaContext&, const Batch&)>& fn) {
  constexpr const char* kName = "train_steps";
  std::int64_t done = 0;
  std::optional<DistributedBatch> batch;  // the first replica changes it while the others wait
  or_stop_all([&] {
    pool_.run({[&](int local, RandomScope& random) {
      for (std::int64_t step = 0; step < steps; ++step) {
        if (local == 0) {
          batch = next();
          if (batch) check_pieces(*batch);
          if (batch) settle_variables();
        }
        meeting().arrive(local, kName);  // the batch is there
        if (!batch) return;
        run_replica(local, random, &*batch,
                    [&](ReplicaContext& replica) { fn(replica, (*batch)[static_cast<std::size_t>(local)]); });
        meeting().arrive(local, kName);  // all are done with it
        if (local == 0) {
          count_run(&*batch);
          ++done;
        }
      }
    }});
  });
  return done;
}

// Workers in sync by parameter servers meet there alone.
void StrategyImpl::check_all_replicas_meet(const char* what) const {
  if (!setup_.workers_in_sync || setup_.workers == 1) return;
  throw Unimplemented(fmt::format(
      "{} of the replicas of {} workers: under {} they have nothing but their gradients in common; use "
      "multi_worker_mirrored",
      what, setup_.workers, setup_.name));
}

void StrategyImpl::all_reduce(int replica, at::Tensor& tensor) {
  constexpr const char* kName = "all_reduce";
  check_all_replicas_meet(kName);
  cross_device_ops().all_reduce(meeting(), replica, tensor);
  if (!setup_.tasks) return;
  if (replica == 0) {
    setup_.tasks->all_reduce(kName, tensor);
    summed_ = tensor;
  }
  if (num_local_replicas() == 1) return;
  meeting().arrive(replica, kName);  // the sum stands
  if (replica != 0) tensor.copy_(summed_);
  meeting().arrive(replica, kName);  // everybody has it
}

std::shared_ptr<void> StrategyImpl::merge(int replica, const void* mine, const Merged& fn) {
  constexpr const char* kName = "merge_call";
  laid_[static_cast<std::size_t>(replica)] = mine;
  meeting().arrive(replica, kName);  // all have laid theirs down
  if (replica == 0) {
    const CrossReplica outside;
    merged_ = fn(laid_);
  }
  meeting().arrive(replica, kName);  // the result stands
  std::shared_ptr<void> result = merged_;
  meeting().arrive(replica, kName);  // everybody has it
  return result;
}

std::pair<at::Tensor, std::int64_t> StrategyImpl::all_gather(int replica, const at::Tensor& tensor,
                                                             std::int64_t axis) {
  struct Joined {
    at::Tensor all;
    std::vector<std::int64_t> begins;  // by local replica
  };
  check_all_replicas_meet("all_gather");
  const at::Tensor mine = tensor.detach();
  const auto joined = std::static_pointer_cast<Joined>(merge(replica, &mine, [&](const auto& laid) {
    std::vector<at::Tensor> local;
    for (const void* each : laid) local.push_back(static_cast<const at::Tensor*>(each)->to(at::kCPU));
    Joined result{at::cat(local, axis), {}};
    std::int64_t begin = 0;
    if (setup_.tasks) {
      const std::vector<at::Tensor> by_task = setup_.tasks->all_gather_any("all_gather", result.all);
      for (int task = 0; task < setup_.tasks->rank(); ++task) {
        begin += by_task[static_cast<std::size_t>(task)].size(axis);
      }
      result.all = at::cat(by_task, axis);
    }
    for (const at::Tensor& each : local) {
      result.begins.push_back(begin);
      begin += each.size(axis);
    }
    return std::make_shared<Joined>(std::move(result));
  }));
  // A copy: a replica may change its own.
  return {joined->all.to(tensor.device(), /*non_blocking=*/false, /*copy=*/true),
          joined->begins[static_cast<std::size_t>(replica)]};
}

std::vector<at::Tensor> StrategyImpl::gather(const std::string& name, const std::vector<at::Tensor>& local) {
  if (!setup_.tasks) return local;
  std::vector<at::Tensor> all;
  for (const at::Tensor& bytes : setup_.tasks->all_gather(name, to_bytes(local))) {
    for (const at::Tensor& their : from_bytes(bytes, local)) all.push_back(their);
  }
  return all;
}

std::vector<double> StrategyImpl::gather(const std::string& name, const std::vector<double>& local) {
  if (!setup_.tasks) return local;
  std::vector<double> all;
  for (const at::Tensor& theirs : setup_.tasks->all_gather(name, at::tensor(local, at::kDouble))) {
    all.insert(all.end(), theirs.data_ptr<double>(), theirs.data_ptr<double>() + theirs.numel());
  }
  return all;
}

void StrategyImpl::log_once(const std::string& line) {
  if (!line.empty() && said_.insert(line).second) log_info("{}", line);
}

ReplicaContext* StrategyImpl::current_replica() {
  return running_replica;
}

void StrategyImpl::seed_random(std::uint64_t seed, std::int64_t step) {
  random_seed_ = seed;
  step_ = step;
}

std::unique_ptr<Updater> StrategyImpl::make_updater(std::shared_ptr<Variables> variables,
                                                    const OptimizerSpec& optimizer) {
  return tandem::internal::make_updater(std::move(variables), optimizer, meeting_place());
}

MeetingPlace StrategyImpl::meeting_place() {
  return {meeting(), cross_device_ops(), setup_.tasks.get()};
}

void StrategyImpl::settle_variables() {
  for (const auto& each : variables()) each->settle();
}

void StrategyImpl::add_variables(const std::shared_ptr<Variables>& variables) {
  variables_.push_back(variables);
}

std::vector<std::shared_ptr<Variables>> StrategyImpl::variables() {
  std::erase_if(variables_, [](const auto& weak) { return weak.expired(); });
  std::vector<std::shared_ptr<Variables>> alive;
  for (const auto& weak : variables_) alive.push_back(weak.lock());
  return alive;
}

}  // namespace tandem::internal
