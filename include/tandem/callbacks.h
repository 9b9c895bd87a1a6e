#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
  std::int64_t rows = 0;         // of the global batch
  double loss = 0;               // of this step alone; the logs hold the mean over the epoch
};

// Called by fit and evaluate at their turning points, on the calling thread, between steps. Derive and
// override what is of interest. Throwing ends the training with that exception.
class Callback {
 public:
  virtual ~Callback() = default;

  // Called once, before everything else.
  virtual void set_model(Model& model) { model_ = &model; }

  virtual void on_train_begin(const TrainingPlan&) {}
  virtual void on_epoch_begin(std::int64_t /*epoch*/) {}
  virtual void on_train_batch_begin(std::int64_t /*step*/) {}
  virtual void on_train_batch_end(const TrainStep&, const Logs&) {}
  // What it adds to the logs, the callbacks after it see; fit's History and progress bar come last.
  virtual void on_epoch_end(std::int64_t /*epoch*/, Logs&) {}
  virtual void on_train_end(const Logs&) {}

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

// Sets the learning rate at the beginning of each epoch to schedule(epoch from 0, current rate); adds "lr" to
// the logs. A rate that is negative or no number ends the training with InvalidArgument.
std::shared_ptr<Callback> learning_rate_scheduler(
    std::function<double(std::int64_t epoch, double learning_rate)> schedule);

struct ProgressBarOptions {
  // Redrawn in place as Keras does. False: one plain line per epoch.
  bool redraw = true;
  // Null: standard output.
  std::ostream* out = nullptr;
  // Seconds between two redraws.
  double interval = 0.05;
};

// Keras's progress bar: "35/938 [>....] - ETA: 4s - loss: 0.1234". fit adds one by itself; see
// FitOptions::verbose. The time per step is that of training alone: without validation, and without the first
// step, which is slow.
std::shared_ptr<Callback> progress_bar(ProgressBarOptions options = {});

}  // namespace tandem
