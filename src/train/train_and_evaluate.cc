#include "tandem/train_and_evaluate.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "checkpoint/checkpoint_store.h"
#include "cluster/text.h"
#include "tandem/error.h"
#include "tandem/server.h"
#include "train/second_or_step_timer.h"

namespace tandem {
namespace {

using internal::steady_seconds;

void sleep(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Evaluates checkpoints and hands the results to the exporters.
class Evaluator {
 public:
  Evaluator(Estimator& estimator, const EvalSpec& spec, std::optional<std::int64_t> max_steps)
      : estimator_(estimator), spec_(spec), max_steps_(max_steps) {}

  // The newest, unless its step has been seen: a step may be saved twice. Whether there was one. The last one
  // is exported as such, seen or not.
  bool evaluate_newest(bool is_last = false) {
    const bool export_again = is_last && !exported_last_;
    // A look at the names first: to find the newest that is whole, all of it is read.
    const auto ids = internal::CheckpointStore(estimator_.model_dir()).list();
    if (ids.empty() || (ids.front().step == step() && !export_again)) return false;
    const auto newest = estimator_.latest_checkpoint();
    if (!newest || (!evaluate_if_new(*newest) && !export_again)) return false;
    exported_last_ = is_last || (max_steps_ && step() >= *max_steps_);
    export_models(*newest);
    return true;
  }

  // What was evaluated last; -1 before the first.
  std::int64_t step() const {
    return result_.has("global_step") ? static_cast<std::int64_t>(result_.at("global_step")) : -1;
  }
  const Logs& result() const { return result_; }

 private:
  bool evaluate_if_new(const std::string& checkpoint) {
    const std::filesystem::path folder(checkpoint);
    if (internal::CheckpointId::parse(folder.filename().string())->step == step()) return false;
    try {
      result_ = estimator_.evaluate(
          spec_.input_fn,
          {.hooks = spec_.hooks, .steps = spec_.steps, .checkpoint_path = checkpoint, .name = spec_.name});
    } catch (const Error&) {
      // Who trains may have removed it meanwhile, for newer ones.
      if (std::filesystem::exists(folder)) throw;
      return false;
    }
    return true;
  }

  void export_models(const std::string& checkpoint) {
    if (spec_.exporters.empty()) return;
    auto batch = spec_.input_fn(InputContext{}).iterate().next();
    if (!batch) return;
    const Tensors example = batch->slice(0, 1).x;
    for (const auto& exporter : spec_.exporters) {
      const std::string folder = exporter->export_model(
          estimator_, {.export_path = estimator_.model_dir() + "/export/" + exporter->name(),
                       .checkpoint_path = checkpoint,
                       .result = result_,
                       .is_the_final_export = exported_last_,
                       .example = example});
      if (!folder.empty()) internal::log_info("exporter {}: {}", internal::quote(exporter->name()), folder);
    }
  }

  Estimator& estimator_;
  const EvalSpec& spec_;
  std::optional<std::int64_t> max_steps_;
  Logs result_;
  bool exported_last_ = false;
};

// Evaluates between two steps of a training, after a checkpoint.
class EvaluatesSaved final : public CheckpointSaverListener {
 public:
  EvaluatesSaved(Evaluator& evaluator, double throttle_secs)
      : evaluator_(evaluator), throttle_secs_(throttle_secs), last_(steady_seconds()) {}

  // The first is that of the beginning. At the end train_and_evaluate() evaluates itself.
  bool after_save(Model&, std::int64_t) override {
    if (std::exchange(first_, false) || steady_seconds() - last_ < throttle_secs_) return false;
    evaluator_.evaluate_newest();
    last_ = steady_seconds();
    return false;
  }

 private:
  Evaluator& evaluator_;
  double throttle_secs_;
  double last_;
  bool first_ = true;
};

Logs run_local(Estimator& estimator, const TrainSpec& train_spec, const EvalSpec& eval_spec) {
  Evaluator evaluator(estimator, eval_spec, train_spec.max_steps);
  std::vector<std::shared_ptr<CheckpointSaverListener>> listeners = train_spec.saving_listeners;
  listeners.push_back(std::make_shared<EvaluatesSaved>(evaluator, eval_spec.throttle_secs));
  estimator.train(train_spec.input_fn, {.hooks = train_spec.hooks,
                                        .max_steps = train_spec.max_steps,
                                        .saving_listeners = std::move(listeners)});
  evaluator.evaluate_newest(/*is_last=*/true);
  return evaluator.result();
}

Logs run_evaluator(Estimator& estimator, const TrainSpec& train_spec, const EvalSpec& eval_spec) {
  constexpr double kPoll = 0.2;
  const double patience = estimator.config().session_creation_timeout_secs;
  sleep(eval_spec.start_delay_secs);
  Evaluator evaluator(estimator, eval_spec, train_spec.max_steps);
  double last_new = steady_seconds();
  double noticed = last_new;
  for (;;) {
    const double begin = steady_seconds();
    if (evaluator.evaluate_newest()) {
      if (train_spec.max_steps && evaluator.step() >= *train_spec.max_steps) return evaluator.result();
      last_new = noticed = steady_seconds();
      sleep(eval_spec.throttle_secs - (last_new - begin));
      continue;
    }
    if (begin - last_new > patience) {
      throw DeadlineExceeded(
          fmt::format("the evaluator has waited {:.0f} s for a new checkpoint in {}: does the chief train "
                      "into the same folder?",
                      patience, internal::quote(estimator.model_dir())));
    }
    constexpr double kNotice = 30;
    if (begin - noticed > kNotice) {
      noticed = begin;
      internal::log_info("waiting for a new checkpoint in {}", estimator.model_dir());
    }
    sleep(kPoll);
  }
}

void run_training_task(Estimator& estimator, const TrainSpec& train_spec) {
  const RunConfig& config = estimator.config();
  const bool in_sync = config.train_distribute && config.train_distribute->communicator();
  if (!in_sync && config.num_worker_replicas() > 1 && config.num_ps_replicas() == 0) {
    throw InvalidArgument(
        fmt::format("the cluster has {} tasks that train, and nothing that they share: give "
                    "RunConfig::train_distribute a "
                    "MultiWorkerMirroredStrategy or a ParameterServerStrategy",
                    config.num_worker_replicas()));
  }
  // Not in sync: one after the other, so that they do not all ask for their first parameters at once.
  if (!in_sync && !config.is_chief()) {
    sleep(std::min(config.experimental_max_worker_delay_secs, 5.0 * (config.task_id() + 1)));
  }
  estimator.train(train_spec.input_fn, {.hooks = train_spec.hooks,
                                        .max_steps = train_spec.max_steps,
                                        .saving_listeners = train_spec.saving_listeners});
}

}  // namespace

Logs train_and_evaluate(Estimator& estimator, const TrainSpec& train_spec, const EvalSpec& eval_spec) {
  if (train_spec.max_steps.value_or(1) < 1) {
    throw InvalidArgument(
        fmt::format("TrainSpec: max_steps is {}: expected 1 or more", *train_spec.max_steps));
  }
  if (!(eval_spec.start_delay_secs >= 0) || !(eval_spec.throttle_secs >= 0) ||
      eval_spec.steps.value_or(1) < 1) {
    throw InvalidArgument(
        "EvalSpec: start_delay_secs and throttle_secs: expected 0 or more; steps: 1 or more");
  }
  const RunConfig& config = estimator.config();
  const std::string task = config.task_type();
  if (task == "evaluator") return run_evaluator(estimator, train_spec, eval_spec);
  if (task == "ps") {
    Server(config.cluster_spec(), task, config.task_id()).join();
    return {};
  }
  if (config.cluster_spec().empty()) return run_local(estimator, train_spec, eval_spec);
  run_training_task(estimator, train_spec);
  return {};
}

}  // namespace tandem
