#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "data/auto_shard.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "train/model_state.h"

namespace tandem {
namespace {

using Callbacks = std::vector<std::shared_ptr<Callback>>;

void check_options(const FitOptions& options) {
  if (options.epochs < 1)
    throw InvalidArgument(fmt::format("epochs is {}: expected 1 or more", options.epochs));
  if (options.initial_epoch < 0 || options.initial_epoch >= options.epochs) {
    throw InvalidArgument(
        fmt::format("initial_epoch is {}: expected 0 to {} (epochs is {}, the number of the last one)",
                    options.initial_epoch, options.epochs - 1, options.epochs));
  }
  const auto positive = [](const char* name, const std::optional<std::int64_t>& value) {
    if (value && *value < 1) throw InvalidArgument(fmt::format("{} is {}: expected 1 or more", name, *value));
  };
  positive("steps_per_epoch", options.steps_per_epoch);
  positive("max_steps", options.max_steps);
}

// The configured batch must give every replica a row; only the last batch of an epoch may be smaller.
void check_batch_size(const Dataset& data, const Strategy& strategy) {
  const std::optional<std::int64_t> rows = data.batch_size();
  if (!rows) throw InvalidArgument("fit() needs a dataset of global batches: call .batch(n) on it first");
  const int replicas = strategy.num_replicas_in_sync();
  if (*rows < replicas) {
    throw InvalidArgument(fmt::format(
        "the global batch of {} is smaller than the {} replicas it is split over: expected {} rows "
        "or more, or fewer replicas",
        *rows, replicas, replicas));
  }
  const std::int64_t piece = (*rows + replicas - 1) / replicas;
  if (!strategy.is_chief()) return;
  internal::log_info("global batch {} = {} replicas x {}{}", *rows, replicas,
                     *rows % replicas ? "up to " : "", piece);
}

// Global batches in one pass, if that can be told. Where each task has elements of its own they may come to
// the end at different steps.
std::int64_t steps_in_data(const Dataset& data, const Strategy& strategy) {
  const std::int64_t all = data.cardinality();
  const internal::SyncGroup* tasks = strategy.impl().tasks();
  if (!tasks || all == Dataset::kInfinite) return all;
  return internal::auto_shard(data, tasks->size(), tasks->rank()).global_batches ? all : Dataset::kUnknown;
}

std::int64_t planned_steps(const Dataset& data, const Strategy& strategy, const FitOptions& options) {
  std::int64_t steps = options.steps_per_epoch ? *options.steps_per_epoch : steps_in_data(data, strategy);
  if (options.max_steps && (steps < 0 || *options.max_steps < steps)) steps = *options.max_steps;
  if (steps == Dataset::kInfinite) {
    throw InvalidArgument(
        "the dataset has no end: give fit() steps_per_epoch or max_steps, or a dataset without repeat()");
  }
  return std::max<std::int64_t>(steps, -1);
}

Callbacks with_progress(const FitOptions& options, const Strategy& strategy) {
  Callbacks callbacks = options.callbacks;
  if (!strategy.is_chief()) return callbacks;
  const bool bar =
      options.verbose == Verbose::kBar || (options.verbose == Verbose::kAuto && isatty(STDOUT_FILENO));
  if (options.verbose != Verbose::kSilent) callbacks.push_back(progress_bar({.redraw = bar}));
  return callbacks;
}

// Keras's training loop, one fit() long.
class Fit {
 public:
  Fit(Model& model, Model::State& state, const Dataset& data, const FitOptions& options)
      : model_(model),
        state_(state),
        data_(data),
        options_(options),
        callbacks_(with_progress(options, state.strategy)) {}

  History run() {
    const TrainingPlan plan{options_.epochs, options_.initial_epoch,
                            planned_steps(data_, state_.strategy, options_)};
    state_.stop_requested = false;
    for (const auto& callback : callbacks_) callback->set_model(model_);
    for (const auto& callback : callbacks_) callback->on_train_begin(plan);
    Logs logs;
    for (std::int64_t epoch = options_.initial_epoch; epoch < options_.epochs && !finished(); ++epoch) {
      logs = run_epoch(epoch);
    }
    for (const auto& callback : callbacks_) callback->on_train_end(logs);
    return std::move(history_);
  }

 private:
  // Callbacks run on every task; if one of them asks to stop, all do.
  void agree_to_stop() {
    if (internal::SyncGroup* tasks = state_.strategy.impl().tasks()) {
      state_.stop_requested = tasks->sum("stop", {state_.stop_requested ? 1 : 0})[0] > 0;
    }
  }

  bool finished() const {
    return state_.stop_requested || dry_ || (options_.max_steps && history_.steps >= *options_.max_steps);
  }

  Logs run_epoch(std::int64_t epoch) {
    // With steps_per_epoch the data goes on where the last epoch left it.
    if (!batches_ || !options_.steps_per_epoch) {
      batches_.emplace(model_.strategy().distribute(data_, {.seed = model_.seed(), .epoch = epoch}));
    }
    state_.reset_metrics();
    for (const auto& callback : callbacks_) callback->on_epoch_begin(epoch);
    Logs logs = train(epoch);
    if (options_.validation_data) {
      for (const auto& [name, value] : model_.evaluate(*options_.validation_data))
        logs.set("val_" + name, value);
    }
    for (const auto& callback : callbacks_) callback->on_epoch_end(epoch, logs);
    agree_to_stop();
    history_.epoch.push_back(epoch);
    for (const auto& [name, value] : logs) history_.history[name].push_back(value);
    return logs;
  }

  Logs train(std::int64_t epoch) {
    Logs logs;
    double loss_sum = 0;
    double rows = 0;
    for (std::int64_t step = 0; !finished() && step != options_.steps_per_epoch; ++step) {
      const std::optional<DistributedBatch> batch = batches_->next_as_optional();
      if (!batch) {
        ended(step);
        break;
      }
      for (const auto& callback : callbacks_) callback->on_train_batch_begin(step);
      const auto [loss, metrics] = state_.train_step(model_, *batch, options_.on_nan);
      ++history_.steps;
      loss_sum += loss * static_cast<double>(batch->global_rows());
      rows += static_cast<double>(batch->global_rows());
      logs = state_.logs(loss_sum / rows, metrics);
      const TrainStep info{epoch, step, model_.global_step(), batch->global_rows(), loss};
      for (const auto& callback : callbacks_) callback->on_train_batch_end(info, logs);
      agree_to_stop();
    }
    return logs;
  }

  // The dataset has no more batches, `step` steps into the epoch.
  void ended(std::int64_t step) {
    if (history_.steps == 0) throw InvalidArgument("the dataset has no batches to train on");
    if (!options_.steps_per_epoch) return;
    internal::log_warning(
        "the dataset ran dry after {} of {} steps of the epoch: training ends here; use repeat()", step,
        *options_.steps_per_epoch);
    dry_ = true;
  }

  Model& model_;
  Model::State& state_;
  const Dataset& data_;
  const FitOptions& options_;
  const Callbacks callbacks_;
  std::optional<DistributedDataset> batches_;
  History history_;
  bool dry_ = false;
};

}  // namespace

History Model::fit(const Dataset& data, FitOptions options) {
  state_->ready("fit()");
  check_options(options);
  check_batch_size(data, state_->strategy);
  return state_->strategy.impl().or_stop_all([&] { return Fit(*this, *state_, data, options).run(); });
}

}  // namespace tandem
