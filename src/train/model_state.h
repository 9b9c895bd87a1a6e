#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "strategy/variables.h"
#include "tandem/model.h"
#include "train/checkpoint_saver.h"
#include "train/training_progress.h"

namespace tandem {

struct Model::State {
  Strategy strategy;
  Policy policy;
  std::uint64_t seed = 0;
  std::vector<Network> networks;    // by local replica
  bool collective_forward = false;  // synchronised batch norms: a replica without rows must run it too
  std::shared_ptr<internal::Variables> variables;
  std::optional<CompileOptions> compiled;
  std::int64_t global_step = 0;
  bool stop_requested = false;
  bool save_requested = false;
  bool preempted = false;
  // Of the fit() that runs; null where there is none.
  const internal::RunningFit* running = nullptr;
  // Where fit() is to go on: set by a callback in on_restore().
  std::optional<internal::Resume> resume;
  // A save under way, to be brought to its end between steps.
  std::shared_ptr<internal::CheckpointSaver> saver;

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
  // The metrics as they stand, with this loss. A collective.
  Logs logs_so_far(double loss) const;

  Standing train_step(const Model& model, const DistributedBatch& batch, OnNan on_nan);
};

namespace internal {

// For the rest of this room.
struct ModelAccess {
  static Model::State& state(const Model& model) { return *model.state_; }
};

}  // namespace internal
}  // namespace tandem
