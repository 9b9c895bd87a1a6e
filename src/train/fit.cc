#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "data/auto_shard.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "train/agreement.h"
#include "train/model_state.h"
#include "train/optimizer_binding.h"
#include "train/training_progress.h"

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
  positive("validation_steps", options.validation_steps);
  positive("validation_freq", options.validation_freq);
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

// Steps of this task in one pass, if that can be told. Where each task has elements of its own they may come
// to the end at different steps.
std::int64_t steps_in_data(const Dataset& data, const Strategy& strategy) {
  const std::int64_t all = data.cardinality();
  const internal::StrategyImpl& impl = strategy.impl();
  const int workers = impl.num_input_pipelines();
  if (workers == 1 || all == Dataset::kInfinite || impl.workers_in_sync()) return all;
  const auto part = internal::auto_shard(data, workers, impl.input_pipeline());
  if (!part.global_batches) return impl.tasks() ? Dataset::kUnknown : part.dataset.cardinality();
  return impl.tasks() ? all : part.dataset.shard(workers, impl.input_pipeline()).cardinality();
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
  if (options.verbose == Verbose::kSilent) return callbacks;
  ProgressBarOptions shown{.redraw = bar};
  if (options.verbose == Verbose::kLines) shown.line_interval = 0;
  callbacks.push_back(progress_bar(shown));
  return callbacks;
}

// Lets those who save see the running fit() while it lives.
class Visible {
 public:
  Visible(Model::State& state, const internal::RunningFit& running) : state_(state) {
    state_.running = &running;
  }
  ~Visible() { state_.running = nullptr; }
  Visible(const Visible&) = delete;
  Visible& operator=(const Visible&) = delete;

 private:
  Model::State& state_;
};

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
    state_.stop_requested = false;
    state_.save_requested = false;
    progress_.epoch = options_.initial_epoch;
    progress_.batch_size = *data_.batch_size();
    for (const auto& callback : callbacks_) callback->set_model(model_);
    state_.resume.reset();
    for (const auto& callback : callbacks_) callback->on_restore();
    const bool resumed = state_.resume.has_value();
    if (resumed) progress_ = state_.resume->progress;
    state_.stop_requested = progress_.stopped;
    const TrainingPlan plan{options_.epochs, progress_.epoch,
                            planned_steps(data_, state_.strategy, options_)};
    for (const auto& callback : callbacks_) callback->on_train_begin(plan);
    if (resumed) go_on(*state_.resume);
    const internal::RunningFit running{progress_, callbacks_, batches_};
    const Visible visible(state_, running);
    Logs logs;
    while (progress_.epoch < options_.epochs && !finished()) logs = run_epoch();
    if (!state_.preempted) end_training();
    // A training that was told to go has not ended: it goes on later.
    if (!state_.preempted) {
      for (const auto& callback : callbacks_) callback->on_train_end(logs);
    }
    History history = std::move(progress_.history);
    history.steps = progress_.steps;
    return history;
  }

 private:
  // Puts everything but the model, which the callback that restored has seen to, where the training stopped.
  void go_on(const internal::Resume& resume) {
    for (std::size_t i = 0; i < callbacks_.size() && i < resume.callbacks.size(); ++i) {
      if (!resume.callbacks[i].empty()) callbacks_[i]->load_state(resume.callbacks[i]);
    }
    DatasetPosition position = resume.position;
    if (const std::int64_t before = std::exchange(progress_.batch_size, *data_.batch_size());
        before != progress_.batch_size) {
      position.element = position.element * before / progress_.batch_size;
      progress_.step = progress_.step * before / progress_.batch_size;
      internal::log_warning("the global batch was {} and is {}: the epoch goes on at the same example",
                            before, progress_.batch_size);
    }
    if (progress_.epoch >= options_.epochs) return;
    // An epoch that begins anew needs the old place only if the data goes on across epochs.
    if (progress_.step == 0 && !options_.steps_per_epoch) return;
    batches_.emplace(model_.strategy().distribute(data_, {.seed = model_.seed(), .epoch = position.epoch}));
    batches_->seek(position);
  }

  // Callbacks run on every task; what one of them asks for, all do.
  void agree() {
    const internal::Agreement agreed = internal::agree(state_);
    progress_.stopped = agreed.stop;
    const ResumePoint point{.epoch = progress_.epoch,
                            .step = progress_.step,
                            .global_step = model_.global_step(),
                            .save_requested = agreed.save_requested,
                            .preempted = agreed.preempted};
    for (const auto& callback : callbacks_) callback->on_resumable(point);
    state_.preempted = point.preempted;
  }

  // Afterwards no other task changes anything, so that what is saved in the end is all.
  void end_training() {
    state_.strategy.impl().end_training();
    state_.variables->fetch();
    if (const auto counted = state_.compiled->optimizer.binding().updater->global_step()) {
      state_.global_step = *counted;
    }
  }

  bool finished() const {
    return state_.stop_requested || state_.preempted || dry_ ||
           (options_.max_steps && steps_of_all() >= *options_.max_steps);
  }

  // Where each task takes steps of its own they count together.
  std::int64_t steps_of_all() const {
    const auto counted = state_.compiled->optimizer.binding().updater->global_step();
    return counted ? *counted - state_.strategy.impl().steps_before() : progress_.steps;
  }

  Logs run_epoch() {
    const std::int64_t epoch = progress_.epoch;
    // With steps_per_epoch the data goes on where the last epoch left it.
    if (!batches_ || (progress_.step == 0 && !options_.steps_per_epoch)) {
      batches_.emplace(model_.strategy().distribute(data_, {.seed = model_.seed(), .epoch = epoch}));
    }
    if (progress_.step == 0) {
      state_.reset_metrics();
      progress_.loss_sum = progress_.rows = 0;
      for (const auto& callback : callbacks_) callback->on_epoch_begin(epoch);
    } else {
      for (const auto& callback : callbacks_) callback->on_epoch_resume(epoch, progress_.step);
    }
    Logs logs = train();
    // What was asked to stop within an epoch leaves it as it is.
    if (state_.preempted) return logs;
    if (options_.validation_data && (epoch + 1) % options_.validation_freq == 0) {
      for (const auto& [name, value] :
           model_.evaluate(*options_.validation_data, {.steps = options_.validation_steps})) {
        logs.set("val_" + name, value);
      }
    }
    for (const auto& callback : callbacks_) callback->on_epoch_end(epoch, logs);
    progress_.history.epoch.push_back(epoch);
    for (const auto& [name, value] : logs) progress_.history.history[name].push_back(value);
    // An epoch that max_steps cut short goes on where it was, should somebody want more steps.
    if (epoch_ended_) {
      ++progress_.epoch;
      progress_.step = 0;
    }
    agree();
    return logs;
  }

  Logs train() {
    // Of the steps before a restart, if there are none after it.
    Logs logs = progress_.step > 0 ? state_.logs_so_far(progress_.loss_sum / progress_.rows) : Logs();
    epoch_ended_ = false;
    while (!epoch_ended_ && !finished()) execute(logs);
    return logs;
  }

  // Up to steps_per_execution steps, one call of the callbacks.
  void execute(Logs& logs) {
    TrainStep info{.epoch = progress_.epoch};
    for (std::int64_t i = 0; i < state_.compiled->steps_per_execution; ++i) {
      epoch_ended_ = progress_.step == options_.steps_per_epoch;
      if (epoch_ended_ || finished()) break;
      const std::optional<DistributedBatch> batch = batches_->next_as_optional();
      if (!batch) {
        data_ended();
        epoch_ended_ = true;
        break;
      }
      if (i == 0) {
        for (const auto& callback : callbacks_) callback->on_train_batch_begin(progress_.step);
      }
      const auto [loss, metrics] = state_.train_step(model_, *batch, options_.on_nan);
      info.step = progress_.step++;
      ++progress_.steps;
      info.loss = loss;
      info.rows += batch->global_rows();
      progress_.loss_sum += loss * static_cast<double>(batch->global_rows());
      progress_.rows += static_cast<double>(batch->global_rows());
      logs = state_.logs(progress_.loss_sum / progress_.rows, metrics);
    }
    if (info.rows == 0) return;
    info.global_step = model_.global_step();
    for (const auto& callback : callbacks_) callback->on_train_batch_end(info, logs);
    agree();
  }

  void data_ended() {
    if (progress_.steps == 0) throw InvalidArgument("the dataset has no batches to train on");
    if (!options_.steps_per_epoch) return;
    internal::log_warning(
        "the dataset ran dry after {} of {} steps of the epoch: training ends here; use repeat()",
        progress_.step, *options_.steps_per_epoch);
    dry_ = true;
  }

  Model& model_;
  Model::State& state_;
  const Dataset& data_;
  const FitOptions& options_;
  const Callbacks callbacks_;
  internal::TrainingProgress progress_;
  std::optional<DistributedDataset> batches_;
  bool epoch_ended_ = false;
  bool dry_ = false;
};

}  // namespace

History Model::fit(const Dataset& data, FitOptions options) {
  state_->ready("fit()");
  check_options(options);
  check_batch_size(data, state_->strategy);
  state_->preempted = false;
  History history =
      state_->strategy.impl().or_stop_all([&] { return Fit(*this, *state_, data, options).run(); });
  // Not an error of this task's that the others would have to be told: they have stopped at the same step.
  if (state_->preempted) {
    if (internal::SyncGroup* tasks = state_->strategy.impl().tasks()) tasks->stop_together();
    throw Preempted(fmt::format(
        "told to go (SIGTERM): stopped after step {}; start the same command again to go on", global_step()));
  }
  return history;
}

}  // namespace tandem
