#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/monitor_mode.h"

namespace tandem {

class Model;

// Names and values in the order they are shown: "loss", the metrics, then "val_..." of the validation.
class Logs {
 public:
  void set(const std::string& name, double value);
  bool has(const std::string& name) const;
  // Throws NotFound, listing the names there are.
  double at(const std::string& name) const;

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  std::size_t size() const { return values_.size(); }

 private:
  std::vector<std::pair<std::string, double>> values_;
};

// What a training run looks like from outside.
struct TrainingPlan {
  std::int64_t epochs = 1;            // the last epoch's number plus one
  std::int64_t initial_epoch = 0;     // counted from 0
  std::int64_t steps_per_epoch = -1;  // -1: not known
};

struct TrainStep {
  std::int64_t epoch = 0;        // from 0
  std::int64_t step = 0;         // of this epoch, from 0
  std::int64_t global_step = 0;  // since the model was made, after this step
  std::int64_t rows = 0;         // of the global batch (of all steps since the last call)
  double loss = 0;               // of this step alone; the logs hold the mean over the epoch
};

// A moment at which all tasks stand at the same step and nothing is half done: what is saved here goes on
// later as if nothing had happened.
struct ResumePoint {
  std::int64_t epoch = 0;  // the one that goes on here, from 0
  std::int64_t step = 0;   // steps of it that are done; 0: the epoch before has just ended
  std::int64_t global_step = 0;
  // A callback of some task has called Model::request_save() since the last such moment.
  bool save_requested = false;
  // A task is being told to go (SIGTERM): fit() ends after this.
  bool preempted = false;
};

// What a callback remembers, for a training that goes on later.
struct CallbackState {
  std::map<std::string, double> numbers = {};
  std::map<std::string, at::Tensor> tensors = {};

  bool empty() const { return numbers.empty() && tensors.empty(); }
};

// Called by fit at its turning points, on the calling thread, between steps. Derive and override what is of
// interest. Throwing ends the training with that exception.
//
// Under a strategy of several tasks callbacks run on every one of them, with the same values; what writes
// files asks model().strategy().is_chief().
class Callback {
 public:
  virtual ~Callback() = default;

  // Called once, before everything else.
  virtual void set_model(Model& model) { model_ = &model; }

  // Before on_train_begin() of any callback: here the model is put back to where a training stopped.
  virtual void on_restore() {}
  virtual void on_train_begin(const TrainingPlan&) {}
  virtual void on_epoch_begin(std::int64_t /*epoch*/) {}
  // In place of on_epoch_begin(), for an epoch of which `step` steps were done before a restart.
  virtual void on_epoch_resume(std::int64_t epoch, std::int64_t /*step*/) { on_epoch_begin(epoch); }
  // With steps_per_execution n the two are called for every n-th step.
  virtual void on_train_batch_begin(std::int64_t /*step*/) {}
  virtual void on_train_batch_end(const TrainStep&, const Logs&) {}
  // What it adds to the logs, the callbacks after it see; fit's History and progress bar come last.
  virtual void on_epoch_end(std::int64_t /*epoch*/, Logs&) {}
  // After on_train_batch_end() or on_epoch_end() of all callbacks: collectives are allowed.
  virtual void on_resumable(const ResumePoint&) {}
  virtual void on_train_end(const Logs&) {}

  // Part of a checkpoint. load_state() comes after on_train_begin(), with what state() gave at the
  // ResumePoint where the training goes on.
  virtual CallbackState state() const { return {}; }
  virtual void load_state(const CallbackState&) {}

 protected:
  Model& model() const { return *model_; }

 private:
  Model* model_ = nullptr;
};

// The logs of every epoch: what fit returns.
struct History {
  std::vector<std::int64_t> epoch;
  std::map<std::string, std::vector<double>> history;
  // Optimizer steps taken by this fit.
  std::int64_t steps = 0;
};

// The callbacks of Keras, under its names and with its defaults (docs/callbacks.md). All throw
// InvalidArgument for options that make no sense. Each serves one fit() at a time, and begins anew with the
// next; in one that goes on from a checkpoint it goes on too. Files are written by the chief alone.

struct EarlyStoppingOptions {
  // A name in the logs. While there is none of that name nothing happens, but for one warning.
  std::string monitor = "val_loss";
  // A change by no more than this is no improvement.
  double min_delta = 0;
  // Epochs without improvement after which training stops.
  std::int64_t patience = 0;
  // A line in the log when it stops.
  bool verbose = false;
  // kAuto: kMax for names that end in "acc", "accuracy" or "auc".
  MonitorMode mode = MonitorMode::kAuto;
  // What must be reached, and not only improved towards, for the patience to begin anew.
  std::optional<double> baseline = {};
  // When it stops, the model gets back the values it had after the best epoch; they are kept on the CPU. A
  // training that comes to its own end leaves the last ones.
  bool restore_best_weights = false;
  // Epochs before this one, counted from 0, do not count.
  std::int64_t start_from_epoch = 0;
};

// Ends the training when a metric no longer gets better.
std::shared_ptr<Callback> EarlyStopping(EarlyStoppingOptions options = {});

struct ReduceLROnPlateauOptions {
  // A name in the logs, as above.
  std::string monitor = "val_loss";
  // What the learning rate is multiplied with: between 0 and 1.
  double factor = 0.1;
  // Epochs without improvement after which it is.
  std::int64_t patience = 10;
  // A line in the log when it is.
  bool verbose = false;
  // kAuto: kMax for names that contain "acc".
  MonitorMode mode = MonitorMode::kAuto;
  // A change by no more than this is no improvement.
  double min_delta = 1e-4;
  // Epochs after a reduction that do not count.
  std::int64_t cooldown = 0;
  // The rate never falls below.
  double min_lr = 0;
};

// Lowers the learning rate when a metric no longer gets better; adds "lr", the rate of the epoch, to the
// logs.
std::shared_ptr<Callback> ReduceLROnPlateau(ReduceLROnPlateauOptions options = {});

// Sets the learning rate at the beginning of each epoch to schedule(epoch from 0, current rate); adds "lr" to
// the logs. A rate that is negative or no number ends the training with InvalidArgument.
std::shared_ptr<Callback> LearningRateScheduler(
    std::function<double(std::int64_t epoch, double learning_rate)> schedule);

struct CSVLoggerOptions {
  std::string filename;
  // Between the cells of a line.
  std::string separator = ",";
  // Go on with a file that is there, under the header it has. Otherwise it begins anew.
  bool append = false;
};

// A file with a line per epoch: its number from 0, and the logs as the callbacks before this one left them. A
// file that cannot be written ends the training with NotFound at its beginning; a disk that is full later
// only costs a warning. A training that goes on from a checkpoint cuts the lines of epochs it trains again.
std::shared_ptr<Callback> CSVLogger(CSVLoggerOptions options);

// Ends the training when the loss is infinite or no number. For FitOptions::on_nan = OnNan::kContinue:
// otherwise fit() throws NonFiniteLoss before.
std::shared_ptr<Callback> TerminateOnNaN();

// The functions that are given are called as those of a Callback are; on_epoch_begin also for an epoch that
// goes on after a restart.
struct LambdaCallbackOptions {
  std::function<void(std::int64_t epoch)> on_epoch_begin = {};
  std::function<void(std::int64_t epoch, Logs& logs)> on_epoch_end = {};
  std::function<void(const TrainingPlan& plan)> on_train_begin = {};
  std::function<void(const Logs& logs)> on_train_end = {};
  std::function<void(std::int64_t step)> on_train_batch_begin = {};
  std::function<void(const TrainStep& step, const Logs& logs)> on_train_batch_end = {};
};
std::shared_ptr<Callback> LambdaCallback(LambdaCallbackOptions options);

struct ProgressBarOptions {
  // Redrawn in place as Keras does, for a terminal. False: plain lines, for a pipe or a file.
  bool redraw = true;
  // Null: standard output.
  std::ostream* out = nullptr;
  // Seconds between two redraws.
  double interval = 0.05;
  // Without redraw: an epoch gets a line when it ends, and one each time that so many seconds have passed in
  // it. 0: only the former.
  double line_interval = 30;
  // A redrawn line is cut so that it does not wrap, which would leave a copy behind at each redraw; the last
  // one of an epoch stays whole. 0: the width of the terminal, if standard output is one.
  int columns = 0;
};

// Keras's progress bar: "35/938 [>....] - ETA: 4s - loss: 0.1234". fit adds one by itself; see
// FitOptions::verbose. The time per step is that of training alone: without validation, without the first
// step, which is slow, and without the steps that were done before a restart.
std::shared_ptr<Callback> progress_bar(ProgressBarOptions options = {});

}  // namespace tandem
