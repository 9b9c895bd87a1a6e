#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/model.h"
#include "tandem/monitored_session.h"
#include "tandem/run_config.h"
#include "tandem/session_hooks.h"
#include "tandem/summary.h"

namespace tandem {

enum class ModeKeys { kTrain, kEval, kPredict };

// What a model_fn returns: TensorFlow's EstimatorSpec, with a module in place of a graph.
struct EstimatorSpec {
  // Makes the network, as for Model: [] { return torch::nn::Linear(1, 1); }. Always needed.
  NetworkFactory module = {};
  // Of labels and output. Needed to train and to evaluate.
  Loss loss = {};
  // Needed to train. A new one for each call of model_fn.
  std::optional<Optimizer> optimizer = {};
  std::vector<Metric> eval_metric_ops = {};
  // What predict() gives of the output, by name. Empty: {"output": the output}.
  std::function<Tensors::Map(const at::Tensor& output)> predictions = {};
  std::vector<std::shared_ptr<SessionRunHook>> training_hooks = {};
  std::vector<std::shared_ptr<SessionRunHook>> training_chief_hooks = {};
  std::vector<std::shared_ptr<SessionRunHook>> evaluation_hooks = {};
  std::vector<std::shared_ptr<SessionRunHook>> prediction_hooks = {};
  // Applied to each batch before the model sees it, to train and to evaluate: takes sample weights or labels
  // from where the input has them. Called from the threads that read the input.
  std::function<Batch(Batch)> prepare_batch = {};
  Scaffold scaffold = {};
};

// Describes a model in terms of the input: features and labels are a first batch of it (labels undefined when
// predicting), for names and shapes. Called once for each train(), evaluate() and predict(), on every task
// alike; not in the scope of a strategy: what it returns is replicated afterwards.
using ModelFn = std::function<EstimatorSpec(const Tensors& features, const Tensors& labels, ModeKeys mode,
                                            const HParams& params, const RunConfig& config)>;

// Makes the input: a function of nothing or of an InputContext that returns a dataset of batches. As in
// TensorFlow, a batch is what one replica gets in one step, and each task calls it for itself: where several
// tasks train, share the data with .shard(context.num_input_pipelines, context.input_pipeline_id).
class InputFn {
 public:
  template <typename Fn>
  requires std::is_invocable_r_v<Dataset, Fn&, const InputContext&> || std::is_invocable_r_v<Dataset, Fn&>
  InputFn(Fn fn)  // NOLINT: implicit by intent
      : make_([fn = std::move(fn)](const InputContext& context) mutable -> Dataset {
          if constexpr (std::is_invocable_r_v<Dataset, Fn&, const InputContext&>) {
            return fn(context);
          } else {
            return fn();
          }
        }) {}

  Dataset operator()(const InputContext& context) const { return make_(context); }

 private:
  std::function<Dataset(const InputContext&)> make_;
};

struct EstimatorOptions {
  // Empty: the config's.
  std::string model_dir = {};
  RunConfig config = {};
  // Handed to model_fn.
  HParams params = {};
};

struct EstimatorTrainOptions {
  std::vector<std::shared_ptr<SessionRunHook>> hooks = {};
  // So many steps more, or until this one; at most one of them. Neither: until the data ends.
  std::optional<std::int64_t> steps = {};
  std::optional<std::int64_t> max_steps = {};
  std::vector<std::shared_ptr<CheckpointSaverListener>> saving_listeners = {};
};

struct EstimatorEvaluateOptions {
  // Called around each batch as those of a session are around a step; before those of the EstimatorSpec. A
  // step's results are the loss of the batch and the metrics so far, to predict nothing; its global_step is
  // the checkpoint's. request_stop() ends it after this batch. Tasks that evaluate together must have the
  // same.
  std::vector<std::shared_ptr<SessionRunHook>> hooks = {};
  // Unset: until the data ends.
  std::optional<std::int64_t> steps = {};
  // Empty: the newest in model_dir.
  std::string checkpoint_path = {};
  // Event files go to "eval_<name>" in model_dir; to "eval" without.
  std::string name = {};
};

// Trains, evaluates and applies the model that a model_fn describes, between calls kept in checkpoints in
// model_dir: every call makes it anew from the newest. TensorFlow's tf.estimator.Estimator.
//
//   tandem::Estimator estimator(model_fn, {.model_dir = "run", .config = {.train_distribute = strategy}});
//   estimator.train(train_input, {.max_steps = 1000});
//   tandem::Logs result = estimator.evaluate(test_input);
//
// A value: a shared handle. Not thread-safe. Under a strategy of several tasks train() is a collective, and
// so is evaluate() if eval_distribute has several.
class Estimator {
 public:
  // Throws as RunConfig::resolved() does, and InvalidArgument if options and config name two folders.
  explicit Estimator(ModelFn model_fn, EstimatorOptions options = {});

  // Throws InvalidArgument, before the first step, if model_fn gives no module, loss or optimizer, if the
  // folder has checkpoints of another model, or for options that make no sense.
  Estimator& train(const InputFn& input_fn, EstimatorTrainOptions options = {});

  // "loss" (the mean over all rows), the metrics, "global_step". Throws NotFound if there is no checkpoint.
  Logs evaluate(const InputFn& input_fn, EstimatorEvaluateOptions options = {});

  // The predictions for every row. Throws as evaluate() does.
  Tensors::Map predict(const InputFn& input_fn, EstimatorEvaluateOptions options = {});

  // Writes the model for programs that have not this code, as Model::save_torchscript() does, to "model.pt"
  // in a new folder named after the time in export_dir_base; returns that folder. `example`: features as the
  // model gets them, one row or more. Called on one task alone.
  std::string export_model(const std::string& export_dir_base, const Tensors& example,
                           const std::string& checkpoint_path = {});

  // Where the newest checkpoint is.
  std::optional<std::string> latest_checkpoint() const;
  // Of the newest checkpoint: parameters and buffers. Throw NotFound.
  std::vector<std::string> get_variable_names() const;
  at::Tensor get_variable_value(const std::string& name) const;

  // With what could be found out filled in.
  const RunConfig& config() const;
  const std::string& model_dir() const;
  const HParams& params() const;
  std::string eval_dir(const std::string& name = {}) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tandem
