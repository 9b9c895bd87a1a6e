#include "tandem/strategy.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "strategy/strategy_impl.h"
#include "strategy/torch_device.h"
#include "tandem/error.h"
#include "tandem/one_device_strategy.h"

namespace tandem {
namespace {

// The scopes this thread is in, innermost last: the one piece of state that is not passed as an object.
thread_local std::vector<Strategy> scopes;

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
  return !internal::ReplicaPool::on_replica_thread();
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

at::Tensor Strategy::reduce(ReduceOp op, const PerReplica<at::Tensor>& value,
                            std::optional<std::int64_t> axis) const {
  if (static_cast<int>(value.size()) != impl_->num_local_replicas()) {
    throw InvalidArgument(
        fmt::format("reduce() got {} values for {} replicas", value.size(), impl_->num_local_replicas()));
  }
  const torch::NoGradGuard no_grad;
  at::Tensor sum;
  double count = 0;
  for (const auto& component : value) {
    const at::Tensor host = component.detach().to(at::kCPU);
    const at::Tensor part = axis ? host.sum(*axis) : host;
    count += axis ? static_cast<double>(host.size(*axis)) : 1.0;
    sum = sum.defined() ? sum + part : part.clone();
  }
  return op == ReduceOp::kSum ? sum : sum / count;
}

double Strategy::reduce(ReduceOp op, const PerReplica<double>& value) const {
  double sum = 0;
  for (const double component : value) sum += component;
  return op == ReduceOp::kSum ? sum : sum / static_cast<double>(value.size());
}

DistributedDataset Strategy::distribute(const Dataset& dataset, IterateOptions options) const {
  if (!dataset.batch_size()) {
    throw InvalidArgument("distribute() needs a dataset of global batches: call .batch(n) on it first");
  }
  return DistributedDataset(impl_, dataset.iterate(options));
}

DistributedDataset::DistributedDataset(std::shared_ptr<internal::StrategyImpl> strategy,
                                       DatasetIterator iterator)
    : strategy_(std::move(strategy)), iterator_(std::move(iterator)) {}

DistributedBatch DistributedDataset::next() {
  auto batch = next_as_optional();
  if (!batch) throw OutOfRange("the dataset has no more batches");
  return *std::move(batch);
}

std::optional<DistributedBatch> DistributedDataset::next_as_optional() {
  const std::optional<Batch> batch = iterator_.next();
  if (!batch) return std::nullopt;
  const std::int64_t rows = batch->rows();
  const std::int64_t replicas = strategy_->num_local_replicas();
  const std::int64_t piece = (rows + replicas - 1) / replicas;
  std::vector<Batch> pieces;
  for (std::int64_t r = 0; r < replicas; ++r) {
    const Batch part = batch->slice(std::min(rows, r * piece), std::min(rows, (r + 1) * piece));
    const c10::Device device = internal::torch_device(strategy_->devices()[static_cast<std::size_t>(r)]);
    pieces.push_back(
        device.is_cpu() ? part : part.transform([&](const at::Tensor& tensor) { return tensor.to(device); }));
  }
  return DistributedBatch(std::move(pieces), rows);
}

}  // namespace tandem
