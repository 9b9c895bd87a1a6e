#include <fmt/format.h>
#include <torch/torch.h>

#include "data/auto_shard.h"
#include "data/own_rows.h"
#include "data/split_rule.h"
#include "strategy/batch_shape.h"
#include "strategy/strategy_impl.h"
#include "strategy/torch_device.h"
#include "tandem/error.h"
#include "tandem/strategy.h"
#include "trace/recorder.h"

namespace tandem {
namespace {

Batch on_device(const Batch& batch, const Device& device) {
  const c10::Device where = internal::torch_device(device);
  if (where.is_cpu()) return batch;
  return batch.transform([&](const at::Tensor& tensor) { return tensor.to(where); });
}

}  // namespace

DistributedDataset Strategy::distribute(const Dataset& dataset, IterateOptions options) const {
  using Holds = DistributedDataset::Holds;
  if (!dataset.batch_size()) {
    throw InvalidArgument("distribute() needs a dataset of global batches: call .batch(n) on it first");
  }
  const int workers = impl_->num_input_pipelines();
  const int worker = impl_->input_pipeline();
  if (workers == 1) return DistributedDataset(impl_, dataset.iterate(options), Holds::kGlobalBatches);
  const bool in_sync = impl_->tasks() || impl_->workers_in_sync();
  // Who cannot agree on the rows of a step must know them beforehand.
  const bool whole_batches_only = in_sync && !impl_->tasks();
  const internal::Sharded part = internal::auto_shard(
      whole_batches_only ? dataset.with_auto_shard(AutoShardPolicy::kData) : dataset, workers, worker);
  if (in_sync || !part.global_batches) impl_->log_once(part.line);
  if (!in_sync) {
    // A step is one worker's: each has batches of its own.
    impl_->log_once(fmt::format("input: worker {} of {} takes every {}th batch, from number {} on", worker,
                                workers, workers, worker));
    const Dataset own = part.global_batches ? part.dataset.shard(workers, worker) : part.dataset;
    return DistributedDataset(impl_, own.iterate(options), Holds::kOwnBatches);
  }
  if (part.global_batches) {
    // The others' rows need not even be made, where that can be told beforehand.
    const std::optional<Dataset> own = internal::own_rows(
        part.dataset,
        {.workers = workers, .replicas_per_worker = impl_->num_local_replicas(), .worker = worker});
    return DistributedDataset(impl_, (own ? *own : part.dataset).iterate(options), Holds::kGlobalBatches);
  }
  const Dataset pieces = internal::rebatch(
      part.dataset,
      internal::batch_sizes_for_worker(*dataset.batch_size(), workers, impl_->num_local_replicas(), worker));
  return DistributedDataset(impl_, pieces.iterate(options), Holds::kPieces);
}

DistributedDataset DistributedDataset::whole(const Strategy& strategy, const Dataset& dataset,
                                             IterateOptions options) {
  if (strategy.impl().tasks() || !dataset.batch_size()) return strategy.distribute(dataset, options);
  return DistributedDataset(strategy.impl().shared_from_this(), dataset.iterate(options), Holds::kOwnBatches);
}

DistributedDataset Strategy::distribute_from_function(const std::function<Dataset(const InputContext&)>& make,
                                                      IterateOptions options) const {
  const Dataset dataset = make({.num_input_pipelines = impl_->num_input_pipelines(),
                                .input_pipeline_id = impl_->input_pipeline(),
                                .num_replicas_in_sync = num_replicas_in_sync()});
  if (!dataset.batch_size()) {
    throw InvalidArgument(
        "distribute_from_function(): the function must return a dataset of per-replica batches: call "
        ".batch(context.get_per_replica_batch_size(n)) on it");
  }
  return DistributedDataset(impl_, dataset.iterate(options), DistributedDataset::Holds::kPieces);
}

DistributedDataset::DistributedDataset(std::shared_ptr<internal::StrategyImpl> strategy,
                                       DatasetIterator iterator, Holds holds)
    : strategy_(std::move(strategy)), iterator_(std::move(iterator)), holds_(holds) {}

DistributedBatch DistributedDataset::next() {
  auto batch = next_as_optional();
  if (!batch) throw OutOfRange("the dataset has no more batches");
  return *std::move(batch);
}

std::optional<DistributedBatch> DistributedDataset::next_as_optional() {
  const internal::TraceSpan span("input");
  return strategy_->or_stop_all([&] {
    switch (holds_) {
      case Holds::kGlobalBatches:
        return cut_batch(strategy_->num_replicas_in_sync(), strategy_->first_replica());
      case Holds::kOwnBatches:
        return cut_batch(strategy_->num_local_replicas(), 0);
      case Holds::kPieces:
        break;
    }
    return take_pieces();
  });
}

void DistributedDataset::seek(DatasetPosition position) {
  iterator_.seek(position);
  ended_ = false;
}

std::optional<DistributedBatch> DistributedDataset::cut_batch(int replicas, int first_replica) {
  const std::optional<Batch> batch = iterator_.next();
  if (!batch) return std::nullopt;
  // Of the whole batch; what is at hand begins at row `first` of it.
  const std::int64_t rows = iterator_.whole_rows() > 0 ? iterator_.whole_rows() : batch->rows();
  const auto range = [&](int local) {
    return internal::rows_of_replica(rows, replicas, first_replica + local);
  };
  const std::int64_t first = iterator_.whole_rows() > 0 ? range(0).begin : 0;
  std::vector<Batch> pieces;
  for (int local = 0; local < strategy_->num_local_replicas(); ++local) {
    pieces.push_back(on_device(batch->slice(range(local).begin - first, range(local).end - first),
                               strategy_->devices()[static_cast<std::size_t>(local)]));
  }
  return DistributedBatch(std::move(pieces), rows);
}

std::optional<DistributedBatch> DistributedDataset::take_pieces() {
  if (ended_) return std::nullopt;
  std::vector<std::optional<Batch>> own;
  std::int64_t rows = 0;
  for (int local = 0; local < strategy_->num_local_replicas(); ++local) {
    own.push_back(iterator_.next());
    if (!own.back()) continue;
    rows += own.back()->rows();
    if (!example_) example_ = own.back()->slice(0, 0);
  }
  // What all tasks must know: the rows of the step, how many have data, how many have never had any.
  std::vector<std::int64_t> all{rows, own.front() ? 1 : 0, example_ ? 0 : 1};
  if (strategy_->tasks()) all = strategy_->tasks()->sum("input", all);
  if (all[1] == 0) {
    ended_ = true;
    return std::nullopt;
  }
  if (all[2] > 0) example_ = internal::agree_on_shape(*strategy_->tasks(), example_);
  std::vector<Batch> pieces;
  for (int local = 0; local < strategy_->num_local_replicas(); ++local) {
    const auto index = static_cast<std::size_t>(local);
    pieces.push_back(on_device(own[index] ? *own[index] : *example_, strategy_->devices()[index]));
  }
  // Workers that cannot ask each other take it that all have as many.
  const std::int64_t alike = strategy_->workers_in_sync() ? strategy_->num_input_pipelines() : 1;
  return DistributedBatch(std::move(pieces), all[0] * alike);
}

}  // namespace tandem
