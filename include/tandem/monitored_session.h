#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/model.h"
#include "tandem/session_hooks.h"

namespace tandem {

// How a model gets its first values, and how it is saved.
struct Scaffold {
  // Called where no checkpoint is found: by the chief, and where tasks train in sync by each of them, alike.
  std::function<void(Model&)> init_fn = {};
  CheckpointOptions saver = {.max_to_keep = 5};
};

// Arguments and defaults are TensorFlow's. Of a pair in steps and seconds the one that is given counts; 0
// turns it off.
struct MonitoredTrainingSessionOptions {
  // Server::target(), as in TensorFlow's programs: shown in the log. Steps run in this process, whatever it
  // says: where variables live is the strategy's business.
  std::string master = {};
  // Whether this task saves and writes summaries. Unset: as the strategy says. Throws InvalidArgument if it
  // is set to something else: a cluster has one chief.
  std::optional<bool> is_chief = {};
  // Where checkpoints are, to go on from and to save to. Empty: none.
  std::string checkpoint_dir = {};
  Scaffold scaffold = {};
  std::vector<std::shared_ptr<SessionRunHook>> hooks = {};
  // On the chief alone: not for what is a collective.
  std::vector<std::shared_ptr<SessionRunHook>> chief_only_hooks = {};
  std::optional<double> save_checkpoint_secs = {};  // neither: 600 seconds
  std::optional<std::int64_t> save_checkpoint_steps = {};
  std::optional<std::int64_t> save_summaries_steps = {};  // neither: 100 steps
  std::optional<double> save_summaries_secs = {};
  // How long close() may wait for what hooks have under way; it is said in the log if they take longer.
  double stop_grace_period_secs = 120;
  // How often the speed is logged. 0: never.
  std::int64_t log_step_count_steps = 100;
  // How long a session that has lost the parameter servers tries to go on.
  double max_wait_secs = 7200;
  // Empty: checkpoint_dir.
  std::string summary_dir = {};
  // The places in these, by name, are saved and restored too. They must outlive the session.
  std::map<std::string, DistributedDataset*> datasets = {};
};

// Trains a model step by step, and takes care of the rest: restores the newest checkpoint, calls hooks,
// saves, writes summaries, recovers, ends in order.
//
//   tandem::MonitoredTrainingSession session(model, {.checkpoint_dir = dir,
//                                                    .hooks = {tandem::StopAtStepHook({.last_step =
//                                                    1000})}});
//   while (!session.should_stop()) session.run([&] { return model.train_step(batches.next()); });
//
// A step is whatever function trains the model once; what it returns (the loss as a number or tensor, Logs,
// or nothing) the hooks get to see. The data's end (OutOfRange) ends the session in order.
//
// If a step throws Unavailable or Aborted (a parameter server is gone) the session is made anew from the
// newest checkpoint, and the step repeated, for up to max_wait_secs. Not where tasks train in sync: their
// group is of no further use then, and the error is passed on, for all of them to be started again. On
// SIGTERM, if there is a checkpoint_dir, all tasks save after the same step, and run() throws Preempted.
//
// Not thread-safe, save for should_stop(). Where tasks train in sync making it, run() and close() are
// collectives.
class MonitoredTrainingSession {
 public:
  // Calls the hooks' begin(), restores or initialises, calls their after_create_session(). Throws as
  // CheckpointManager::restore() does: InvalidArgument for a checkpoint_dir of another model.
  explicit MonitoredTrainingSession(Model model, MonitoredTrainingSessionOptions options = {});
  // Closes it unless an exception is under way; what goes wrong then is logged. Better to close() before.
  ~MonitoredTrainingSession();
  MonitoredTrainingSession(const MonitoredTrainingSession&) = delete;
  MonitoredTrainingSession& operator=(const MonitoredTrainingSession&) = delete;

  bool should_stop() const;

  // One step with the hooks around it. False if it found the data at its end. Throws FailedPrecondition after
  // the end.
  template <std::invocable Step>
  bool run(Step&& step) {
    return run_step([&]() -> Logs { return logs_of(step); });
  }

  // Calls the hooks' end(), unless a step or a hook has thrown. Once; further calls do nothing.
  void close();

 private:
  template <typename Step>
  static Logs logs_of(Step& step) {
    using Result = std::invoke_result_t<Step&>;
    Logs logs;
    if constexpr (std::is_void_v<Result>) {
      step();
    } else if constexpr (std::convertible_to<Result, Logs>) {
      logs = step();
    } else if constexpr (std::convertible_to<Result, double>) {
      logs.set("loss", static_cast<double>(step()));
    } else {
      const at::Tensor loss = step();
      logs.set("loss", loss.template item<double>());
    }
    return logs;
  }

  bool run_step(const std::function<Logs()>& step);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
