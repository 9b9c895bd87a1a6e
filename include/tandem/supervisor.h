#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tandem/monitored_session.h"

namespace tandem {

// Arguments and defaults are TensorFlow's; 0 turns a period off.
struct SupervisorOptions {
  // As in MonitoredTrainingSessionOptions.
  std::optional<bool> is_chief = {};
  // Where checkpoints and summaries go, and where a training goes on from. Empty: neither.
  std::string logdir = {};
  double save_model_secs = 600;
  double save_summaries_secs = 120;
  // How often a task that waits for the chief to make the model ready says so in the log. TensorFlow looks as
  // often; here a task knows at once, so that it never waits longer than it must.
  double recovery_wait_secs = 30;
  // How long stop() waits for what loop() runs.
  double stop_grace_secs = 120;
  // Called where no checkpoint is found.
  std::function<void(Model&)> init_fn = {};
  CheckpointOptions saver = {.max_to_keep = 5};
  // Keeps checkpoints of several trainings in one logdir apart. Checkpoints here are folders named after
  // their step; with another name than this one they lie in a folder of that name.
  std::string checkpoint_basename = "model.ckpt";
  // The places in these, by name, are saved and restored too.
  std::map<std::string, DistributedDataset*> datasets = {};
};

// TensorFlow 1's Supervisor: starts a training, watches over it, ends it.
//
//   tandem::Supervisor supervisor(model, {.logdir = "run"});
//   supervisor.managed_session([&](tandem::MonitoredTrainingSession& session) {
//     while (!supervisor.should_stop()) session.run([&] { return model.train_step(batches.next()); });
//   });
//
// Checkpoints are written in the background while steps go on. It does not recover: a training that failed is
// started again, and goes on from the last checkpoint.
//
// should_stop(), request_stop(), loop() and wait_for_stop() may be called from any thread.
class Supervisor {
 public:
  // Throws InvalidArgument for a period or a name that makes no sense.
  explicit Supervisor(Model model, SupervisorOptions options = {});
  // Waits as stop() does.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Makes a session that is ready (restored, or initialised; a worker of parameter servers waits until the
  // chief has done so), calls fn with it, stops, and closes it. Throws
  // what fn or a function of loop() threw first; the data's end (OutOfRange) counts as a clean one.
  void managed_session(const std::function<void(MonitoredTrainingSession&)>& fn);

  // Whether somebody has asked to stop. Where tasks train in sync: on all tasks at the same step.
  bool should_stop() const;
  // With an error: managed_session() throws it.
  void request_stop(std::exception_ptr error = {});
  // Asks to stop and waits for the threads of loop(), for stop_grace_secs at most: one that takes longer is
  // left behind, which is logged.
  void stop();

  // Calls fn on a thread of its own, every so many seconds (0: at once again), until the stop. What it throws
  // stops the training.
  void loop(double timer_interval_secs, std::function<void()> fn);

  // Whether it came to a stop within that time.
  bool wait_for_stop(std::chrono::milliseconds timeout) const;

 private:
  struct Shared;
  Model model_;
  SupervisorOptions options_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tandem
