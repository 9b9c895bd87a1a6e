#include "tandem/early_stopping_hooks.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/log.h"
#include "summary/event_reader.h"
#include "tandem/error.h"
#include "train/second_or_step_timer.h"

namespace tandem::experimental {
namespace {

class EarlyStoppingHook final : public SessionRunHook {
 public:
  EarlyStoppingHook(std::function<bool()> should_stop, const EarlyStoppingHookOptions& options)
      : should_stop_(std::move(should_stop)),
        min_steps_(options.min_steps),
        timer_("early stopping hook",
               options.run_every_secs || options.run_every_steps ? options.run_every_secs : 60,
               options.run_every_steps) {}

  void after_run(SessionRunContext& context, const SessionRunValues& values) override {
    const double now = internal::steady_seconds();
    if (!context.model().strategy().is_chief() || values.global_step < min_steps_ ||
        !timer_.should_trigger_for_step(values.global_step, now)) {
      return;
    }
    timer_.update_last_triggered_step(values.global_step, now);
    if (!should_stop_()) return;
    internal::log_info("step {}: stopping early", values.global_step);
    context.request_stop();
  }

 private:
  std::function<bool()> should_stop_;
  std::int64_t min_steps_;
  internal::SecondOrStepTimer timer_;
};

// Steps and values of one metric, from min_steps on.
using Curve = std::vector<std::pair<std::int64_t, double>>;

std::shared_ptr<SessionRunHook> stop_by_curve(const Estimator& estimator, const std::string& metric,
                                              const EarlyStoppingHookOptions& options,
                                              std::function<bool(const Curve&)> decide) {
  const std::string folder = options.eval_dir.empty() ? estimator.eval_dir() : options.eval_dir;
  return make_early_stopping_hook(
      estimator,
      [=, min_steps = options.min_steps, decide = std::move(decide)] {
        Curve curve;
        for (const auto& [step, logs] : read_eval_metrics(folder)) {
          if (step >= min_steps && logs.has(metric)) curve.emplace_back(step, logs.at(metric));
        }
        return decide(curve);
      },
      options);
}

// `sign`: 1 where less is better, -1 where more is.
std::shared_ptr<SessionRunHook> stop_without_progress(const Estimator& estimator, const std::string& metric,
                                                      std::int64_t patience, double sign,
                                                      const EarlyStoppingHookOptions& options) {
  if (patience < 1)
    throw InvalidArgument("an early stopping hook waits for 0 steps or fewer: expected 1 or more");
  return stop_by_curve(estimator, metric, options, [=](const Curve& curve) {
    if (curve.empty()) return false;
    const auto best =
        std::ranges::min_element(curve, {}, [&](const auto& point) { return sign * point.second; });
    return curve.back().first - best->first >= patience;
  });
}

}  // namespace

std::shared_ptr<SessionRunHook> make_early_stopping_hook(const Estimator&,
                                                         std::function<bool()> should_stop_fn,
                                                         EarlyStoppingHookOptions options) {
  return std::make_shared<EarlyStoppingHook>(std::move(should_stop_fn), options);
}

std::shared_ptr<SessionRunHook> stop_if_no_decrease_hook(const Estimator& estimator,
                                                         const std::string& metric_name,
                                                         std::int64_t max_steps_without_decrease,
                                                         EarlyStoppingHookOptions options) {
  return stop_without_progress(estimator, metric_name, max_steps_without_decrease, 1, options);
}

std::shared_ptr<SessionRunHook> stop_if_no_increase_hook(const Estimator& estimator,
                                                         const std::string& metric_name,
                                                         std::int64_t max_steps_without_increase,
                                                         EarlyStoppingHookOptions options) {
  return stop_without_progress(estimator, metric_name, max_steps_without_increase, -1, options);
}

std::shared_ptr<SessionRunHook> stop_if_higher_hook(const Estimator& estimator,
                                                    const std::string& metric_name, double threshold,
                                                    EarlyStoppingHookOptions options) {
  return stop_by_curve(estimator, metric_name, options, [=](const Curve& curve) {
    return std::ranges::any_of(curve, [&](const auto& point) { return point.second > threshold; });
  });
}

std::shared_ptr<SessionRunHook> stop_if_lower_hook(const Estimator& estimator, const std::string& metric_name,
                                                   double threshold, EarlyStoppingHookOptions options) {
  return stop_by_curve(estimator, metric_name, options, [=](const Curve& curve) {
    return std::ranges::any_of(curve, [&](const auto& point) { return point.second < threshold; });
  });
}

std::map<std::int64_t, Logs> read_eval_metrics(const std::string& eval_dir) {
  std::vector<std::string> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(eval_dir, none)) {
    if (entry.path().filename().string().find(".tfevents.") != std::string::npos)
      files.push_back(entry.path());
  }
  std::ranges::sort(files);  // their names begin with the time
  std::map<std::int64_t, Logs> metrics;
  for (const std::string& file : files) {
    internal::EventReader reader(file);
    while (const auto event = reader.next()) {
      for (const auto& value : event->values) {
        if (const float* number = std::get_if<float>(&value.value))
          metrics[event->step].set(value.tag, *number);
      }
    }
  }
  return metrics;
}

}  // namespace tandem::experimental
