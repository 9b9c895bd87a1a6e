#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "strategy/variables.h"
#include "tandem/model.h"

namespace tandem {

struct Model::State {
  Strategy strategy;
  std::uint64_t seed = 0;
  std::vector<Network> networks;    // by local replica
  bool collective_forward = false;  // synchronised batch norms: a replica without rows must run it too
  std::shared_ptr<internal::Variables> variables;
  std::optional<CompileOptions> compiled;
  std::int64_t global_step = 0;
  bool stop_requested = false;

  // Throws FailedPrecondition before compile().
  CompileOptions& ready(const char* what);

  void reset_metrics();

  // The losses of all replicas of all tasks added up, and the metrics as they stand: one collective.
  struct Standing {
    double loss = 0;
    std::vector<double> metrics = {};
  };
  Standing standing(const std::vector<double>& local_losses) const;
  // The loss first, then the metrics.
  Logs logs(double loss, const std::vector<double>& metrics) const;

  Standing train_step(const Model& model, const DistributedBatch& batch, OnNan on_nan);
};

}  // namespace tandem
