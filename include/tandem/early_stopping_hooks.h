#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tandem/estimator.h"
#include "tandem/session_hooks.h"

namespace tandem::experimental {

// Hooks that end the training of an Estimator by what its evaluations have shown: those that somebody, an
// evaluator mostly, has written into the folder of event files. TensorFlow's, under its names.

struct EarlyStoppingHookOptions {
  // Where the evaluations are. Empty: Estimator::eval_dir().
  std::string eval_dir = {};
  // Nothing is stopped before this step.
  std::int64_t min_steps = 0;
  // How often to look: every so many seconds, or steps.
  std::optional<double> run_every_secs = {};  // neither: 60
  std::optional<std::int64_t> run_every_steps = {};
};

// Asks should_stop_fn on the chief; if it says so, all tasks stop.
std::shared_ptr<SessionRunHook> make_early_stopping_hook(const Estimator& estimator,
                                                         std::function<bool()> should_stop_fn,
                                                         EarlyStoppingHookOptions options = {});

// When a metric has not been lower (or higher) than ever before for so many steps.
std::shared_ptr<SessionRunHook> stop_if_no_decrease_hook(const Estimator& estimator,
                                                         const std::string& metric_name,
                                                         std::int64_t max_steps_without_decrease,
                                                         EarlyStoppingHookOptions options = {});
std::shared_ptr<SessionRunHook> stop_if_no_increase_hook(const Estimator& estimator,
                                                         const std::string& metric_name,
                                                         std::int64_t max_steps_without_increase,
                                                         EarlyStoppingHookOptions options = {});
// When a metric is above (or below) a threshold.
std::shared_ptr<SessionRunHook> stop_if_higher_hook(const Estimator& estimator,
                                                    const std::string& metric_name, double threshold,
                                                    EarlyStoppingHookOptions options = {});
std::shared_ptr<SessionRunHook> stop_if_lower_hook(const Estimator& estimator, const std::string& metric_name,
                                                   double threshold, EarlyStoppingHookOptions options = {});

// What the event files of a folder have, by step; of a step that was evaluated twice, the last. Nothing for a
// folder that is not there.
std::map<std::int64_t, Logs> read_eval_metrics(const std::string& eval_dir);

}  // namespace tandem::experimental
