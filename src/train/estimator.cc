#include "tandem/estimator.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/tensors.h"
#include "cluster/text.h"
#include "ps/device_spec.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/parameter_server_strategy.h"
#include "train/chief_does.h"
#include "train/evaluation.h"
#include "train/training_state.h"

namespace tandem {
namespace {

constexpr const char* kTrainData = "train";

std::string temporary_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "tandem-estimator-XXXXXX").string();
  if (!mkdtemp(path.data()))
    throw NotFound(fmt::format("cannot make a folder like {}", internal::quote(path)));
  internal::log_warning("no model_dir is given: using the temporary folder {}", path);
  return path;
}

const char* mode_name(ModeKeys mode) {
  return mode == ModeKeys::kTrain ? "train" : mode == ModeKeys::kEval ? "evaluate" : "predict";
}

void check_spec(const EstimatorSpec& spec, ModeKeys mode) {
  const auto lacks = [&](const char* what) {
    return InvalidArgument(fmt::format("model_fn returned no {}: expected EstimatorSpec::{}, to {}", what,
                                       what, mode_name(mode)));
  };
  if (!spec.module) throw lacks("module");
  if (mode != ModeKeys::kPredict && !spec.loss.per_example) throw lacks("loss");
  if (mode == ModeKeys::kTrain && !spec.optimizer) throw lacks("optimizer");
}

// device_fn as a ParameterServerStrategy asks it.
PsStrategy ps_strategy_of(const RunConfig& config) {
  if (!config.device_fn) return {};
  return [device_fn = config.device_fn](const VariableToPlace& variable) {
    const std::string device = device_fn(variable);
    const auto spec = internal::ps::DeviceSpec::parse(device);
    if (spec.job != "ps" || !spec.task) {
      throw InvalidArgument(fmt::format(
          "RunConfig: device_fn puts variable {} on {}: expected a ps task, such as /job:ps/task:0",
          internal::quote(variable.name), internal::quote(device)));
    }
    return *spec.task;
  };
}

std::vector<std::shared_ptr<SessionRunHook>> joined(
    std::vector<std::shared_ptr<SessionRunHook>> hooks,
    const std::vector<std::shared_ptr<SessionRunHook>>& more) {
  hooks.insert(hooks.end(), more.begin(), more.end());
  return hooks;
}

// What the chief finds, on every task.
std::string chiefs_text(const Strategy& strategy, const std::string& what,
                        const std::function<std::string()>& find) {
  std::string text;
  internal::chief_does(strategy.impl(), what, [&] { text = find(); });
  internal::SyncGroup* tasks = strategy.impl().tasks();
  return tasks ? tasks->broadcast_text(what, text) : text;
}

// Of "…/step-000000001200.g000007".
std::int64_t step_of(const std::string& checkpoint_path) {
  const auto id = internal::CheckpointId::parse(std::filesystem::path(checkpoint_path).filename().string());
  if (!id) {
    throw InvalidArgument(fmt::format(
        "{} is no checkpoint: expected a folder such as step-000000001200.g000007", checkpoint_path));
  }
  return id->step;
}

}  // namespace

struct Estimator::Impl {
  ModelFn model_fn;
  RunConfig config;
  HParams params;
  // Made for the first train() where the config names none, and kept: it is a task of a cluster.
  std::optional<Strategy> parameter_servers = {};

  // The model that model_fn describes, under a strategy, and its input.
  struct Built {
    Model model;
    EstimatorSpec spec;
  };

  EstimatorSpec describe(const Tensors& features, const Tensors& labels, ModeKeys mode) const;
  Strategy train_strategy();
  Built build(const Strategy& strategy, const InputFn& input_fn, ModeKeys mode) const;
  Built make(const Strategy& strategy, EstimatorSpec spec, ModeKeys mode) const;
  DistributedDataset input(const Strategy& strategy, const InputFn& input_fn, std::uint64_t seed,
                           const std::function<Batch(Batch)>& prepare = {}) const;
  std::string newest_checkpoint(const Strategy& strategy, const std::string& given) const;

  // What fn does with the model as the checkpoint has it, and with hooks around it.
  template <typename Fn>
  static auto with_hooks(Model model, std::vector<std::shared_ptr<SessionRunHook>> hooks,
                         const std::string& checkpoint, const Fn& fn) {
    return model.strategy().impl().or_stop_all([&] {
      internal::EvaluationHooks around(model, std::move(hooks));
      model.load_weights(checkpoint);
      const auto id = internal::CheckpointId::parse(std::filesystem::path(checkpoint).filename().string());
      if (id) internal::ModelAccess::state(model).global_step = id->step;
      around.after_create_session();
      auto result = fn(around);
      around.end();
      return result;
    });
  }

  std::shared_ptr<SessionRunHook> saver_hook(
      DistributedDataset& batches, std::vector<std::shared_ptr<CheckpointSaverListener>> listeners) const;

  CheckpointOptions checkpoint_options() const {
    return {.max_to_keep = config.keep_checkpoint_max,
            .keep_checkpoint_every_n_hours = config.keep_checkpoint_every_n_hours};
  }
};

EstimatorSpec Estimator::Impl::describe(const Tensors& features, const Tensors& labels, ModeKeys mode) const {
  EstimatorSpec spec =
      model_fn(features, mode == ModeKeys::kPredict ? Tensors() : labels, mode, params, config);
  check_spec(spec, mode);
  return spec;
}

// TensorFlow's rule: in a cluster with ps tasks they hold the variables, unless a strategy says otherwise.
Strategy Estimator::Impl::train_strategy() {
  if (config.train_distribute) return *config.train_distribute;
  if (config.num_ps_replicas() == 0) return Strategy();
  if (!parameter_servers) {
    parameter_servers =
        ParameterServerStrategy({.cluster = config.cluster, .ps_strategy = ps_strategy_of(config)});
  }
  return *parameter_servers;
}

DistributedDataset Estimator::Impl::input(const Strategy& strategy, const InputFn& input_fn,
                                          std::uint64_t seed,
                                          const std::function<Batch(Batch)>& prepare) const {
  return strategy.distribute_from_function(
      [&](const InputContext& context) {
        const Dataset data = input_fn(context);
        return prepare ? data.map(prepare) : data;
      },
      {.seed = seed});
}

Estimator::Impl::Built Estimator::Impl::make(const Strategy& strategy, EstimatorSpec spec,
                                             ModeKeys mode) const {
  const Scope inside = strategy.scope();
  // Only training draws anything: no seed to choose, and to tell, elsewhere.
  Model model(spec.module,
              {.seed = mode == ModeKeys::kTrain ? config.tf_random_seed
                                                : std::optional(config.tf_random_seed.value_or(0))});
  if (mode != ModeKeys::kPredict) {
    // To evaluate takes no optimizer; compile() does.
    model.compile({.optimizer = mode == ModeKeys::kTrain ? *spec.optimizer : optimizers::SGD(),
                   .loss = spec.loss,
                   .metrics = mode == ModeKeys::kEval ? spec.eval_metric_ops : std::vector<Metric>()});
  }
  return {std::move(model), std::move(spec)};
}

Estimator::Impl::Built Estimator::Impl::build(const Strategy& strategy, const InputFn& input_fn,
                                              ModeKeys mode) const {
  return strategy.impl().or_stop_all([&] {
    DistributedDataset first = input(strategy, input_fn, config.tf_random_seed.value_or(0));
    const std::optional<DistributedBatch> batch = first.next_as_optional();
    if (!batch) throw InvalidArgument(fmt::format("input_fn gave no batches to {} on", mode_name(mode)));
    return make(strategy, describe((*batch)[0].x, (*batch)[0].y, mode), mode);
  });
}

std::string Estimator::Impl::newest_checkpoint(const Strategy& strategy, const std::string& given) const {
  if (!given.empty()) return given;
  return chiefs_text(strategy, "newest checkpoint", [&] {
    const auto newest = tandem::latest_checkpoint(config.model_dir);
    if (!newest) {
      throw NotFound(
          fmt::format("there is no checkpoint in {}: train() first", internal::quote(config.model_dir)));
    }
    return *newest;
  });
}

// Where nothing is to be saved while it trains, the end still is.
std::shared_ptr<SessionRunHook> Estimator::Impl::saver_hook(
    DistributedDataset& batches, std::vector<std::shared_ptr<CheckpointSaverListener>> listeners) const {
  constexpr double kNever = 1e12;
  CheckpointSaverOptions options{.checkpoint_dir = config.model_dir,
                                 .listeners = std::move(listeners),
                                 .saver = checkpoint_options(),
                                 .datasets = {{kTrainData, &batches}}};
  if (config.save_checkpoints_steps.value_or(0) > 0) {
    options.save_steps = config.save_checkpoints_steps;
  } else {
    const double secs = config.save_checkpoints_secs.value_or(0);
    options.save_secs = secs > 0 ? secs : kNever;
  }
  return CheckpointSaverHook(std::move(options));
}

Estimator::Estimator(ModelFn model_fn, EstimatorOptions options) {
  if (!model_fn) throw InvalidArgument("Estimator: model_fn is empty");
  RunConfig config = options.config.resolved();
  if (!options.model_dir.empty()) {
    if (!options.config.model_dir.empty() && options.config.model_dir != options.model_dir) {
      throw InvalidArgument(
          fmt::format("Estimator: model_dir is {} and that of its RunConfig {}: expected one",
                      internal::quote(options.model_dir), internal::quote(options.config.model_dir)));
    }
    config.model_dir = options.model_dir;
  }
  if (config.model_dir.empty()) config.model_dir = temporary_folder();
  impl_ = std::make_shared<Impl>(Impl{std::move(model_fn), std::move(config), std::move(options.params)});
}

Estimator& Estimator::train(const InputFn& input_fn, EstimatorTrainOptions options) {
  if (options.steps && options.max_steps) {
    throw InvalidArgument("train(): both steps and max_steps are given: expected one of them");
  }
  if (options.steps.value_or(1) < 1 || options.max_steps.value_or(1) < 1) {
    throw InvalidArgument("train(): steps and max_steps: expected 1 or more");
  }
  const RunConfig& config = impl_->config;
  const Strategy strategy = impl_->train_strategy();
  if (options.max_steps) {
    const std::string newest = chiefs_text(strategy, "newest checkpoint", [&] {
      return tandem::latest_checkpoint(config.model_dir).value_or("");
    });
    if (!newest.empty() && step_of(newest) >= *options.max_steps) {
      internal::log_info("step {} is reached: nothing to train", *options.max_steps);
      return *this;
    }
  }
  auto [model, spec] = impl_->build(strategy, input_fn, ModeKeys::kTrain);
  // The order of the data depends on the seed: on that of the training that goes on, if one does.
  // Tasks in sync restore and save together; else the chief does it for all.
  const bool saves = strategy.is_chief() || strategy.communicator();
  if (saves && !config.tf_random_seed) {
    CheckpointManager(model, config.model_dir, impl_->checkpoint_options()).restore();
  }
  DistributedDataset batches = impl_->input(strategy, input_fn, model.seed(), spec.prepare_batch);

  std::vector<std::shared_ptr<SessionRunHook>> hooks = joined(options.hooks, spec.training_hooks);
  if (options.steps || options.max_steps) {
    hooks.push_back(StopAtStepHook({.num_steps = options.steps, .last_step = options.max_steps}));
  }
  if (saves) hooks.push_back(impl_->saver_hook(batches, std::move(options.saving_listeners)));
  MonitoredTrainingSession session(
      model, {.checkpoint_dir = config.model_dir,
              .scaffold = {.init_fn = spec.scaffold.init_fn, .saver = impl_->checkpoint_options()},
              .hooks = std::move(hooks),
              .chief_only_hooks = spec.training_chief_hooks,
              .save_checkpoint_secs = 0,
              .save_summaries_steps = config.save_summary_steps,
              .log_step_count_steps = config.log_step_count_steps,
              .max_wait_secs = config.session_creation_timeout_secs,
              .datasets = {{kTrainData, &batches}}});
  while (!session.should_stop()) session.run([&] { return model.train_step(batches.next()); });
  session.close();
  return *this;
}

Logs Estimator::evaluate(const InputFn& input_fn, EstimatorEvaluateOptions options) {
  const Strategy strategy = impl_->config.eval_distribute.value_or(Strategy());
  const std::string checkpoint = impl_->newest_checkpoint(strategy, options.checkpoint_path);
  const std::int64_t step = step_of(checkpoint);
  const Impl::Built built = impl_->build(strategy, input_fn, ModeKeys::kEval);
  Logs result = impl_->with_hooks(
      built.model, joined(options.hooks, built.spec.evaluation_hooks), checkpoint, [&](auto& hooks) {
        DistributedDataset batches =
            impl_->input(strategy, input_fn, built.model.seed(), built.spec.prepare_batch);
        return internal::evaluate_with(hooks, built.model, batches, {.steps = options.steps});
      });
  result.set("global_step", static_cast<double>(step));
  if (strategy.is_chief()) {
    SummaryWriter writer(eval_dir(options.name));
    for (const auto& [name, value] : result) {
      if (name != "global_step") writer.scalar(name, step, value);
    }
  }
  return result;
}

Tensors::Map Estimator::predict(const InputFn& input_fn, EstimatorEvaluateOptions options) {
  const Strategy strategy = impl_->config.eval_distribute.value_or(Strategy());
  const std::string checkpoint = impl_->newest_checkpoint(strategy, options.checkpoint_path);
  const Impl::Built built = impl_->build(strategy, input_fn, ModeKeys::kPredict);
  const at::Tensor output = impl_->with_hooks(
      built.model, joined(options.hooks, built.spec.prediction_hooks), checkpoint, [&](auto& hooks) {
        DistributedDataset batches = impl_->input(strategy, input_fn, built.model.seed());
        return internal::predict_with(hooks, built.model, batches, {.steps = options.steps});
      });
  return built.spec.predictions ? built.spec.predictions(output) : Tensors::Map{{"output", output}};
}

std::string Estimator::export_model(const std::string& export_dir_base, const Tensors& example,
                                    const std::string& checkpoint_path) {
  const Strategy here;
  const std::string checkpoint = impl_->newest_checkpoint(here, checkpoint_path);
  auto [model, spec] =
      impl_->make(here, impl_->describe(example, {}, ModeKeys::kPredict), ModeKeys::kPredict);
  model.load_weights(checkpoint);
  // TensorFlow's names: seconds since 1970; of two in one second, the next free one.
  std::int64_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  std::filesystem::create_directories(export_dir_base);
  std::string folder;
  do {
    folder = fmt::format("{}/{}", export_dir_base, seconds++);
  } while (!std::filesystem::create_directory(folder));
  try {
    model.save_torchscript(folder + "/model.pt", example);
  } catch (...) {
    std::filesystem::remove_all(folder);
    throw;
  }
  return folder;
}

std::optional<std::string> Estimator::latest_checkpoint() const {
  return tandem::latest_checkpoint(impl_->config.model_dir);
}

std::vector<std::string> Estimator::get_variable_names() const {
  internal::PosixFileSystem files;
  const internal::Checkpoint checkpoint(files, impl_->newest_checkpoint(Strategy(), {}));
  std::vector<std::string> names;
  for (const auto& [name, place] : checkpoint.tensors()) {
    if (internal::is_plain(place.tensor->name)) names.push_back(place.tensor->name);
  }
  return names;
}

at::Tensor Estimator::get_variable_value(const std::string& name) const {
  internal::PosixFileSystem files;
  const internal::Checkpoint checkpoint(files, impl_->newest_checkpoint(Strategy(), {}));
  const internal::TensorEntry* entry = checkpoint.find(name);
  if (!entry) {
    throw NotFound(fmt::format("{} has no variable {}{}", checkpoint.folder(), internal::quote(name),
                               internal::did_you_mean(name, get_variable_names())));
  }
  const at::Tensor value = internal::empty_like_entry(*entry);
  checkpoint.read(std::vector<internal::TensorRequest>{{name, internal::writable_bytes(value)}});
  return value;
}

const RunConfig& Estimator::config() const {
  return impl_->config;
}
const std::string& Estimator::model_dir() const {
  return impl_->config.model_dir;
}
const HParams& Estimator::params() const {
  return impl_->params;
}
std::string Estimator::eval_dir(const std::string& name) const {
  return impl_->config.model_dir + (name.empty() ? "/eval" : "/eval_" + name);
}

}  // namespace tandem
