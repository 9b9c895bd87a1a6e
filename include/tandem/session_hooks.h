#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/checkpoint.h"
#include "tandem/summary.h"

namespace tandem {

// What a hook can ask for around a step.
class SessionRunContext {
 public:
  explicit SessionRunContext(Model& model) : model_(model) {}

  Model& model() const { return model_; }
  // The session ends after this step, on all tasks.
  void request_stop();
  bool stop_requested() const { return stop_requested_; }
  // Those who save do so after this step, on all tasks.
  void request_save();

 private:
  Model& model_;
  bool stop_requested_ = false;
};

// What a step has done.
struct SessionRunValues {
  std::int64_t global_step = 0;  // after it
  // What the step returned: "loss", and whatever else.
  Logs results = {};
};

// Called by MonitoredTrainingSession at its turning points, on the thread that runs it. TensorFlow's
// SessionRunHook: derive and override what is of interest. Throwing ends the session with that exception.
//
// Under a strategy of several tasks that train in sync, hooks run on every task, alike.
class SessionRunHook {
 public:
  virtual ~SessionRunHook() = default;

  // Once, before anything is restored.
  virtual void begin(Model&) {}
  // When the model has its values: restored, or the initial ones. Again after each recovery.
  virtual void after_create_session(Model&) {}
  virtual void before_run(SessionRunContext&) {}
  virtual void after_run(SessionRunContext&, const SessionRunValues&) {}
  // After after_run() of all hooks, when all tasks stand at the same step: collectives are allowed. `epoch`
  // and `step` of the point have no meaning here.
  virtual void on_resumable(const ResumePoint&) {}
  // At the end, if nothing was thrown.
  virtual void end(Model&) {}
};

// TensorFlow's hooks, under its names. Of a pair in steps and seconds one must be given. All throw
// InvalidArgument for options that make no sense.

struct StopAtStepOptions {
  // So many steps more than there were at the beginning, or at this step. One of them.
  std::optional<std::int64_t> num_steps = {};
  std::optional<std::int64_t> last_step = {};
};
std::shared_ptr<SessionRunHook> StopAtStepHook(StopAtStepOptions options);

// Told when a CheckpointSaverHook saves; on every task. Derive and override.
class CheckpointSaverListener {
 public:
  virtual ~CheckpointSaverListener() = default;

  virtual void begin(Model&) {}
  virtual void before_save(Model&, std::int64_t /*global_step*/) {}
  // True: training is to stop.
  virtual bool after_save(Model&, std::int64_t /*global_step*/) { return false; }
  virtual void end(Model&, std::int64_t /*global_step*/) {}
};

struct CheckpointSaverOptions {
  std::string checkpoint_dir = {};
  std::optional<double> save_secs = {};
  std::optional<std::int64_t> save_steps = {};
  std::vector<std::shared_ptr<CheckpointSaverListener>> listeners = {};
  CheckpointOptions saver = {.max_to_keep = 5};
  // The places in these, by name, are saved too; see CheckpointManager::track(). Not at the end: a training
  // that has ended begins the data anew when it is started again.
  std::map<std::string, DistributedDataset*> datasets = {};
};
// Saves when the session is made, whenever it is due, when the process is told to go (SIGTERM), and at the
// end. Writing goes on while the next steps run, save for listeners: these find the checkpoint on the disk.
std::shared_ptr<SessionRunHook> CheckpointSaverHook(CheckpointSaverOptions options);

struct StepCounterOptions {
  std::optional<std::int64_t> every_n_steps = 100;
  std::optional<double> every_n_secs = {};
  // Where "global_step/sec" goes beside the log; none: nowhere else.
  SummaryWriter summary_writer = {};
};
std::shared_ptr<SessionRunHook> StepCounterHook(StepCounterOptions options = {});

struct SummarySaverOptions {
  std::optional<std::int64_t> save_steps = {};
  std::optional<double> save_secs = {};
  SummaryWriter summary_writer = {};
  // Writes more than what the step returned.
  std::function<void(SummaryWriter& writer, Model& model, std::int64_t step)> summary_op = {};
};
std::shared_ptr<SessionRunHook> SummarySaverHook(SummarySaverOptions options);

struct LoggingTensorOptions {
  // Names of what the step returned. Empty: all.
  std::vector<std::string> tensors = {};
  std::optional<std::int64_t> every_n_iter = {};
  std::optional<double> every_n_secs = {};
  // And at the end; alone, if neither of the two above is given.
  bool at_end = false;
  // Makes the line. Empty: "loss = 0.25, global_step = 100 (1.2 sec)".
  std::function<std::string(const Logs&)> formatter = {};
};
std::shared_ptr<SessionRunHook> LoggingTensorHook(LoggingTensorOptions options);

// If the "loss" that a step returned is infinite or no number: throws NonFiniteLoss, or only asks to stop.
// (Model::train_step() throws by itself, before anything is updated, unless it is given OnNan::kContinue.)
std::shared_ptr<SessionRunHook> NanTensorHook(bool fail_on_nan_loss = true);

// Calls a function at the end.
std::shared_ptr<SessionRunHook> FinalOpsHook(std::function<void(Model&)> final_ops);

// Calls a function before each step: to set what the step reads.
std::shared_ptr<SessionRunHook> FeedFnHook(std::function<void()> feed_fn);

// Does not begin before the global step, which other workers move, is at least this; asks every half second.
// Throws DeadlineExceeded after max_wait_secs.
std::shared_ptr<SessionRunHook> GlobalStepWaiterHook(std::int64_t wait_until_step,
                                                     double max_wait_secs = 7200);

struct ProfilerOptions {
  std::optional<std::int64_t> save_steps = {};
  std::optional<double> save_secs = {};
  std::string output_dir = {};  // empty: where the process runs
  bool show_dataflow = true;    // arrows from an operation to its part of backward
  bool show_memory = false;     // how much of the process is in memory, over time
};
// Records a step whenever it is due (never the first), and writes it to "timeline-<step>.json", for
// chrome://tracing or ui.perfetto.dev: what each replica did (input, forward, backward, the gradients' way,
// update), and every operation of libtorch. Tasks other than the chief write "timeline-<step>.<task>.json".
// A recorded step is slower; the others are not.
std::shared_ptr<SessionRunHook> ProfilerHook(ProfilerOptions options);

}  // namespace tandem
