#pragma once

#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

#include "strategy/variables.h"
#include "train/evaluation_hooks.h"
#include "train/model_state.h"

namespace tandem::internal {

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

// Everything that differs from training while it lives. Making it is a collective.
struct Evaluation {
  explicit Evaluation(Model::State& state) : as_read(*state.variables), mode(state.networks) {}

  BuffersAsRead as_read;
  EvaluationMode mode;
};

// What Model's functions of the same names do, with hooks around each batch.
Logs evaluate_with(EvaluationHooks& hooks, const Model& model, DistributedDataset& batches,
                   const EvaluateOptions& options);
at::Tensor predict_with(EvaluationHooks& hooks, const Model& model, DistributedDataset& batches,
                        const EvaluateOptions& options);

}  // namespace tandem::internal
