#include <fmt/format.h>
#include <torch/torch.h>

#include "tandem/error.h"
#include "tandem/model.h"
#include "train/model_state.h"

namespace tandem {
namespace {

// Puts every module in evaluation mode, and each back in its own mode at the end.
class EvaluationMode {
 public:
  explicit EvaluationMode(const std::vector<Network>& networks) {
    for (const Network& network : networks) {
      for (const auto& module : network.module().modules()) {
        was_.emplace_back(module, module->is_training());
      }
      network.module().eval();
    }
  }
  ~EvaluationMode() {
    // Parents come before their children, so that a child's own mode has the last word.
    for (auto& [module, training] : was_) module->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> was_;
};

// Everything that differs from training while it lives.
struct Evaluation {
  explicit Evaluation(Model::State& state) : as_read(*state.variables), mode(state.networks) {}

  internal::BuffersAsRead as_read;
  EvaluationMode mode;
};

// The batches of a dataset one by one, at most `steps` of them. Returns the rows it has seen.
std::int64_t for_each_batch(const Model::State& state, const Dataset& data, const EvaluateOptions& options,
                            const std::function<void(const DistributedBatch&)>& fn) {
  DistributedDataset batches = state.strategy.distribute(data, {.seed = state.seed});
  std::int64_t rows = 0;
  for (std::int64_t step = 0; step != options.steps; ++step) {
    const std::optional<DistributedBatch> batch = batches.next_as_optional();
    if (!batch) break;
    fn(*batch);
    rows += batch->global_rows();
  }
  if (rows == 0) throw InvalidArgument("the dataset has no batches to evaluate");
  return rows;
}

}  // namespace

Logs Model::evaluate(const Dataset& data, EvaluateOptions options) {
  State& state = *state_;
  const CompileOptions& compiled = state.ready("evaluate()");
  const Evaluation evaluation(state);
  state.reset_metrics();
  double loss_sum = 0;
  const std::int64_t rows = for_each_batch(state, data, options, [&](const DistributedBatch& batch) {
    const PerReplica<double> losses = state.strategy.run(
        [&](ReplicaContext& replica, const Batch& piece) {
          if (piece.rows() == 0) return 0.0;
          const torch::NoGradGuard no_grad;
          const at::Tensor y_pred = on(replica)(piece.x);
          for (const Metric& metric : compiled.metrics)
            metric.update(replica, piece.y, y_pred, piece.sample_weight);
          const at::Tensor per_example = compiled.loss.per_example(piece.y, y_pred);
          return compute_average_loss(per_example, 1, piece.sample_weight).item<double>();
        },
        batch);
    loss_sum += state.strategy.reduce(ReduceOp::kSum, losses);
  });
  return state.logs(loss_sum / static_cast<double>(rows));
}

at::Tensor Model::predict(const Dataset& data, EvaluateOptions options) {
  State& state = *state_;
  const Evaluation evaluation(state);
  std::vector<at::Tensor> pieces;  // in the order of the rows: by batch, then by replica
  for_each_batch(state, data, options, [&](const DistributedBatch& batch) {
    const PerReplica<at::Tensor> outputs = state.strategy.run(
        [&](ReplicaContext& replica, const Batch& piece) {
          if (piece.rows() == 0) return at::Tensor();
          const torch::NoGradGuard no_grad;
          return on(replica)(piece.x).to(at::kCPU);
        },
        batch);
    for (const at::Tensor& output : outputs) {
      if (output.defined()) pieces.push_back(output);
    }
  });
  return at::cat(pieces);
}

}  // namespace tandem
