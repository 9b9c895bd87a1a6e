#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/estimator.h"
#include "tandem/exporter.h"

namespace tandem {

struct TrainSpec {
  InputFn input_fn;
  // Unset: until the data ends.
  std::optional<std::int64_t> max_steps = {};
  std::vector<std::shared_ptr<SessionRunHook>> hooks = {};
  std::vector<std::shared_ptr<CheckpointSaverListener>> saving_listeners = {};
};

struct EvalSpec {
  InputFn input_fn;
  // Unset: until the data ends.
  std::optional<std::int64_t> steps = 100;
  std::string name = {};
  // Of each evaluation; see EstimatorEvaluateOptions.
  std::vector<std::shared_ptr<SessionRunHook>> hooks = {};
  std::vector<std::shared_ptr<Exporter>> exporters = {};
  // An evaluator's first evaluation, and the least time from one to the next.
  double start_delay_secs = 120;
  double throttle_secs = 600;
};

// TensorFlow's: the same call on every task of a cluster, or on one machine.
//
// In no cluster: trains, evaluates after a checkpoint whenever throttle_secs have passed,
// and at the end; returns the last result. In a cluster: a chief or worker trains; an evaluator evaluates the
// newest checkpoint whenever there is one it has not seen, until that of max_steps, and returns its last
// result; a ps serves until the others have finished. Who trains gets no result. With ps tasks and no
// train_distribute, workers train with a ParameterServerStrategy, as TensorFlow's do; see
// RunConfig::device_fn.
//
// Throws as Estimator does, on an evaluator DeadlineExceeded if for session_creation_timeout_secs there is no
// new checkpoint.
Logs train_and_evaluate(Estimator& estimator, const TrainSpec& train_spec, const EvalSpec& eval_spec);

}  // namespace tandem
