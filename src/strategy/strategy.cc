#include "tandem/strategy.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/one_device_strategy.h"

namespace tandem {
namespace {

// The scopes this thread is in, innermost last: the one piece of state that is not passed as an object.
thread_local std::vector<Strategy> scopes;

void check_one_per_replica(const char* what, std::size_t values, const internal::StrategyImpl& impl) {
  if (static_cast<int>(values) == impl.num_local_replicas()) return;
  throw InvalidArgument(
      fmt::format("{} got {} values for {} replicas", what, values, impl.num_local_replicas()));
}

}  // namespace

Scope::Scope(const Strategy& strategy) {
  if (!scopes.empty() && !(scopes.back() == strategy)) {
    throw FailedPrecondition(fmt::format(
        "scope() of a {} strategy was entered inside the scope of another ({}): leave that one first",
        strategy.name(), scopes.back().name()));
  }
  scopes.push_back(strategy);
}

Scope::~Scope() {
  scopes.pop_back();
}

Strategy get_strategy() {
  return scopes.empty() ? Strategy() : scopes.back();
}
bool has_strategy() {
  return !scopes.empty();
}
bool in_cross_replica_context() {
  return !get_replica_context();
}

Strategy::Strategy() {
  static const OneDeviceStrategy strategy(default_devices().front().name());
  impl_ = static_cast<const Strategy&>(strategy).impl_;
}

std::string Strategy::name() const {
  return impl_->name();
}
int Strategy::num_replicas_in_sync() const {
  return impl_->num_replicas_in_sync();
}
int Strategy::first_replica() const {
  return impl_->first_replica();
}
bool Strategy::is_chief() const {
  return impl_->is_chief();
}
Communicator* Strategy::communicator() const {
  return impl_->tasks() ? &impl_->tasks()->communicator() : nullptr;
}
const std::vector<Device>& Strategy::worker_devices() const {
  return impl_->devices();
}
int Strategy::threads_per_replica() const {
  return impl_->threads_per_replica();
}
void Strategy::seed_random(std::uint64_t seed, std::int64_t step) const {
  impl_->seed_random(seed, step);
}

void Strategy::run_on_replicas(const std::function<void(ReplicaContext&)>& fn,
                               const DistributedBatch* batch) const {
  impl_->run(fn, batch);
}

std::int64_t Strategy::run_steps(DistributedDataset& batches, std::int64_t steps,
                                 const std::function<void(ReplicaContext&, const Batch&)>& fn) const {
  return impl_->run_steps(
      steps, [&] { return batches.next_as_optional(); }, fn);
}

at::Tensor Strategy::reduce(ReduceOp op, const PerReplica<at::Tensor>& value,
                            std::optional<std::int64_t> axis) const {
  check_one_per_replica("reduce()", value.size(), *impl_);
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;  // by replica: the value, then how many it stands for
  for (const auto& component : value) {
    const at::Tensor host = component.detach().to(at::kCPU);
    parts.push_back(axis ? host.sum(*axis) : host);
    parts.push_back(at::scalar_tensor(axis ? host.size(*axis) : 1, at::kLong));
  }
  at::Tensor sum;
  double count = 0;
  const std::vector<at::Tensor> all = impl_->gather("reduce", parts);
  for (std::size_t i = 0; i < all.size(); i += 2) {
    sum = sum.defined() ? sum + all[i] : all[i].clone();
    count += all[i + 1].item<double>();
  }
  return op == ReduceOp::kSum ? sum : sum / count;
}

double Strategy::reduce(ReduceOp op, const PerReplica<double>& value) const {
  check_one_per_replica("reduce()", value.size(), *impl_);
  double sum = 0;
  const std::vector<double> all = impl_->gather("reduce", value.values());
  for (const double component : all) sum += component;
  return op == ReduceOp::kSum ? sum : sum / static_cast<double>(all.size());
}

at::Tensor Strategy::gather(const PerReplica<at::Tensor>& value, std::int64_t axis) const {
  check_one_per_replica("gather()", value.size(), *impl_);
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> local;
  for (const auto& component : value) {
    if (component.is_sparse() || component.dim() == 0) {
      throw InvalidArgument(
          fmt::format("gather() of a {}: expected a dense tensor with a dimension to join along",
                      component.is_sparse() ? "sparse tensor" : "scalar"));
    }
    local.push_back(component.detach().to(at::kCPU));
  }
  const at::Tensor mine = at::cat(local, axis);
  return impl_->tasks() ? at::cat(impl_->tasks()->all_gather_any("gather", mine), axis) : mine;
}

}  // namespace tandem
