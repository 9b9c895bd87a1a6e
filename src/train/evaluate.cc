#include <fmt/format.h>
#include <torch/torch.h>

#include <numeric>

#include "data/auto_shard.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "train/evaluation.h"
#include "train/model_state.h"

namespace tandem {
namespace {

// The batches one by one, at most `steps` of them. Of each, `results` are for the hooks. Returns the rows it
// has seen.
std::int64_t for_each_batch(internal::EvaluationHooks& hooks, DistributedDataset& batches,
                            const EvaluateOptions& options,
                            const std::function<void(const DistributedBatch&)>& fn,
                            const std::function<Logs(const DistributedBatch&)>& results) {
  std::int64_t rows = 0;
  for (std::int64_t step = 0; step != options.steps; ++step) {
    const std::optional<DistributedBatch> batch = batches.next_as_optional();
    if (!batch) break;
    hooks.before_run();
    fn(*batch);
    rows += batch->global_rows();
    if (!hooks.empty() && !hooks.after_run(results(*batch))) break;
  }
  if (rows == 0) throw InvalidArgument("the dataset has no batches to evaluate");
  return rows;
}

// Tasks that share files would give the rows in the order of their reading: here each reads all, and takes
// its rows of each batch.
Dataset in_order(const Dataset& data, const Strategy& strategy) {
  const internal::SyncGroup* tasks = strategy.impl().tasks();
  if (!tasks) return data;
  const auto part = internal::auto_shard(data, tasks->size(), tasks->rank());
  return part.chosen == AutoShardPolicy::kFile ? data.with_auto_shard(AutoShardPolicy::kData) : data;
}

// What the replicas of this task have predicted, and of how many rows, in order.
class Predictions {
 public:
  void add(const PerReplica<at::Tensor>& outputs) {
    for (const at::Tensor& output : outputs) {
      rows_.push_back(output.defined() ? output.size(0) : 0);
      if (output.defined()) pieces_.push_back(output);
    }
  }

  // By step, then by replica of all tasks. A collective.
  at::Tensor of_all_tasks(const Strategy& strategy) const {
    internal::SyncGroup* tasks = strategy.impl().tasks();
    if (!tasks) return at::cat(pieces_);
    const auto rows = tasks->all_gather("predict (rows)", at::tensor(rows_, at::kLong));
    const auto outputs = tasks->all_gather_any("predict", pieces_.empty() ? at::Tensor() : at::cat(pieces_));
    std::vector<std::int64_t> taken(outputs.size(), 0);  // by task
    std::vector<at::Tensor> ordered;
    const std::size_t replicas = strategy.worker_devices().size();
    for (std::size_t first = 0; first < rows_.size(); first += replicas) {
      for (std::size_t task = 0; task < outputs.size(); ++task) {
        const auto* theirs = rows[task].data_ptr<std::int64_t>() + first;
        const std::int64_t count = std::accumulate(theirs, theirs + replicas, std::int64_t{0});
        if (count > 0) ordered.push_back(outputs[task].slice(0, taken[task], taken[task] + count));
        taken[task] += count;
      }
    }
    return at::cat(ordered);
  }

 private:
  std::vector<std::int64_t> rows_;  // by step, then by replica
  std::vector<at::Tensor> pieces_;
};

}  // namespace

Logs Model::evaluate(const Dataset& data, EvaluateOptions options) {
  state_->ready("evaluate()");
  DistributedDataset batches = DistributedDataset::whole(state_->strategy, data, {.seed = state_->seed});
  return evaluate(batches, options);
}

Logs Model::evaluate(DistributedDataset& batches, EvaluateOptions options) {
  internal::EvaluationHooks none(*this, {});
  return internal::evaluate_with(none, *this, batches, options);
}

Logs internal::evaluate_with(EvaluationHooks& hooks, const Model& model, DistributedDataset& batches,
                             const EvaluateOptions& options) {
  Model::State& state = ModelAccess::state(model);
  const CompileOptions& compiled = state.ready("evaluate()");
  return state.strategy.impl().or_stop_all([&] {
    const Evaluation evaluation(state);
    state.reset_metrics();
    std::vector<double> loss_sums(state.networks.size(), 0);  // by local replica
    std::vector<double> of_batch(state.networks.size(), 0);
    const auto count = [&](ReplicaContext& replica, const Batch& piece) {
      const auto index = static_cast<std::size_t>(replica.local_id());
      of_batch[index] = 0;
      if (piece.rows() == 0) return;
      const torch::NoGradGuard no_grad;
      const at::Tensor y_pred = model.on(replica)(piece.x);
      for (const Metric& metric : compiled.metrics)
        metric.update(replica, piece.y, y_pred, piece.sample_weight);
      const at::Tensor per_example = compiled.loss.per_example(piece.y, y_pred);
      of_batch[index] = compute_average_loss(per_example, 1, piece.sample_weight).item<double>();
      loss_sums[index] += of_batch[index];
    };
    const auto mean_of_rows = [&](const std::vector<double>& sums, std::int64_t rows) {
      const auto [sum, metrics] = state.standing(sums);
      return state.logs(sum / static_cast<double>(rows), metrics);
    };
    const std::int64_t rows = for_each_batch(
        hooks, batches, options, [&](const DistributedBatch& batch) { state.strategy.run(count, batch); },
        [&](const DistributedBatch& batch) { return mean_of_rows(of_batch, batch.global_rows()); });
    return mean_of_rows(loss_sums, rows);
  });
}

at::Tensor Model::predict(const Dataset& data, EvaluateOptions options) {
  DistributedDataset batches =
      DistributedDataset::whole(state_->strategy, in_order(data, state_->strategy), {.seed = state_->seed});
  return predict(batches, options);
}

at::Tensor Model::predict(DistributedDataset& batches, EvaluateOptions options) {
  internal::EvaluationHooks none(*this, {});
  return internal::predict_with(none, *this, batches, options);
}

at::Tensor internal::predict_with(EvaluationHooks& hooks, const Model& model, DistributedDataset& batches,
                                  const EvaluateOptions& options) {
  Model::State& state = ModelAccess::state(model);
  return state.strategy.impl().or_stop_all([&] {
    const Evaluation evaluation(state);
    Predictions predictions;
    const auto predict = [&](ReplicaContext& replica, const Batch& piece) {
      if (piece.rows() == 0) return at::Tensor();
      const torch::NoGradGuard no_grad;
      return model.on(replica)(piece.x).to(at::kCPU);
    };
    for_each_batch(
        hooks, batches, options,
        [&](const DistributedBatch& batch) { predictions.add(state.strategy.run(predict, batch)); },
        [](const DistributedBatch&) { return Logs(); });
    return predictions.of_all_tasks(state.strategy);
  });
}

}  // namespace tandem
