#include "tandem/session_hooks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <thread>

#include "base/log.h"
#include "tandem/error.h"
#include "train/second_or_step_timer.h"

namespace tandem {

void SessionRunContext::request_stop() {
  stop_requested_ = true;
  model_.stop_training();
}

void SessionRunContext::request_save() {
  model_.request_save();
}

namespace {

using internal::SecondOrStepTimer;
using internal::steady_seconds;

class StopAtStep final : public SessionRunHook {
 public:
  explicit StopAtStep(StopAtStepOptions options) : options_(options) {
    if (options.num_steps.has_value() == options.last_step.has_value()) {
      throw InvalidArgument("StopAtStepHook: expected one of num_steps and last_step");
    }
    if (options.num_steps && *options.num_steps < 1) {
      throw InvalidArgument(
          fmt::format("StopAtStepHook: num_steps is {}: expected 1 or more", *options.num_steps));
    }
  }

  void after_create_session(Model& model) override {
    if (!last_step_)
      last_step_ = options_.last_step.value_or(model.global_step() + options_.num_steps.value_or(0));
    if (model.global_step() >= *last_step_) model.stop_training();
  }
  void after_run(SessionRunContext& context, const SessionRunValues& values) override {
    if (values.global_step >= *last_step_) context.request_stop();
  }

 private:
  StopAtStepOptions options_;
  std::optional<std::int64_t> last_step_;
};

class CheckpointSaver final : public SessionRunHook {
 public:
  explicit CheckpointSaver(CheckpointSaverOptions options)
      : options_(std::move(options)), timer_("CheckpointSaverHook", options_.save_secs, options_.save_steps) {
    if (options_.checkpoint_dir.empty()) {
      throw InvalidArgument("CheckpointSaverHook: checkpoint_dir is empty: expected the path of a folder");
    }
  }

  void begin(Model& model) override {
    model_ = model;
    checkpoints_.emplace(model, options_.checkpoint_dir, options_.saver);
    for (const auto& [name, dataset] : options_.datasets) checkpoints_->track(name, *dataset);
    for (const auto& listener : options_.listeners) listener->begin(model);
  }

  void after_create_session(Model& model) override {
    if (saved_step_ != model.global_step()) save(*checkpoints_);
    timer_.reset();
    timer_.update_last_triggered_step(model.global_step(), steady_seconds());
  }

  void after_run(SessionRunContext& context, const SessionRunValues& values) override {
    // Clocks differ: the chief's counts.
    if (context.model().strategy().is_chief() &&
        timer_.should_trigger_for_step(values.global_step, steady_seconds())) {
      context.request_save();
    }
  }

  void on_resumable(const ResumePoint& point) override {
    if (!point.save_requested && !point.preempted) return;
    timer_.update_last_triggered_step(point.global_step, steady_seconds());
    if (save(*checkpoints_)) model_->stop_training();
    if (point.preempted) checkpoints_->wait();
  }

  void end(Model& model) override {
    const std::int64_t step = model.global_step();
    if (!options_.datasets.empty()) {
      checkpoints_->wait();
      CheckpointManager without_places(model, options_.checkpoint_dir, options_.saver);
      save(without_places);
      without_places.wait();
    } else {
      if (step != saved_step_) save(*checkpoints_);
      checkpoints_->wait();
    }
    for (const auto& listener : options_.listeners) listener->end(model, step);
    model_.reset();
  }

 private:
  // Whether a listener wants to stop.
  bool save(CheckpointManager& checkpoints) {
    const std::int64_t step = model_->global_step();
    for (const auto& listener : options_.listeners) listener->before_save(*model_, step);
    checkpoints.save_async();
    saved_step_ = step;
    if (options_.listeners.empty()) return false;
    checkpoints.wait();
    bool stop = false;
    for (const auto& listener : options_.listeners) stop = listener->after_save(*model_, step) || stop;
    return stop;
  }

  CheckpointSaverOptions options_;
  SecondOrStepTimer timer_;
  std::optional<Model> model_;
  std::optional<CheckpointManager> checkpoints_;
  std::optional<std::int64_t> saved_step_;
};

class StepCounter final : public SessionRunHook {
 public:
  explicit StepCounter(StepCounterOptions options)
      : options_(std::move(options)),
        timer_("StepCounterHook", options_.every_n_secs, options_.every_n_steps) {}

  void after_create_session(Model& model) override {
    timer_.reset();
    timer_.update_last_triggered_step(model.global_step(), steady_seconds());
  }
  void after_run(SessionRunContext&, const SessionRunValues& values) override {
    const double now = steady_seconds();
    if (!timer_.should_trigger_for_step(values.global_step, now)) return;
    const auto elapsed = timer_.update_last_triggered_step(values.global_step, now);
    if (!elapsed || elapsed->seconds <= 0) return;
    const double rate = static_cast<double>(elapsed->steps) / elapsed->seconds;
    internal::log_info("global_step/sec: {:.6g}", rate);
    if (options_.summary_writer) options_.summary_writer.scalar("global_step/sec", values.global_step, rate);
  }

 private:
  StepCounterOptions options_;
  SecondOrStepTimer timer_;
};

class SummarySaver final : public SessionRunHook {
 public:
  explicit SummarySaver(SummarySaverOptions options)
      : options_(std::move(options)), timer_("SummarySaverHook", options_.save_secs, options_.save_steps) {}

  void after_run(SessionRunContext& context, const SessionRunValues& values) override {
    const double now = steady_seconds();
    if (!options_.summary_writer || !timer_.should_trigger_for_step(values.global_step, now)) return;
    timer_.update_last_triggered_step(values.global_step, now);
    for (const auto& [name, value] : values.results) {
      options_.summary_writer.scalar(name, values.global_step, value);
    }
    if (options_.summary_op) {
      options_.summary_op(options_.summary_writer, context.model(), values.global_step);
    }
  }
  void end(Model&) override {
    if (options_.summary_writer) options_.summary_writer.flush();
  }

 private:
  SummarySaverOptions options_;
  SecondOrStepTimer timer_;
};

class LoggingTensor final : public SessionRunHook {
 public:
  explicit LoggingTensor(LoggingTensorOptions options) : options_(std::move(options)) {
    if (!options_.at_end || options_.every_n_iter || options_.every_n_secs) {
      timer_.emplace("LoggingTensorHook", options_.every_n_secs, options_.every_n_iter);
    }
  }

  void after_run(SessionRunContext&, const SessionRunValues& values) override {
    last_ = values;
    // Its own count: an evaluation has many batches and one step.
    ++iteration_;
    const double now = steady_seconds();
    if (!timer_ || !timer_->should_trigger_for_step(iteration_, now)) return;
    log(timer_->update_last_triggered_step(iteration_, now));
  }
  void end(Model&) override {
    if (options_.at_end && last_) log({});
  }

 private:
  void log(const std::optional<SecondOrStepTimer::Elapsed>& elapsed) const {
    Logs shown;
    for (const auto& [name, value] : last_->results) {
      if (options_.tensors.empty()) shown.set(name, value);
    }
    for (const std::string& name : options_.tensors) shown.set(name, last_->results.at(name));
    shown.set("global_step", static_cast<double>(last_->global_step));
    if (options_.formatter) return internal::log_info("{}", options_.formatter(shown));
    std::vector<std::string> parts;
    for (const auto& [name, value] : shown) parts.push_back(fmt::format("{} = {:.7g}", name, value));
    internal::log_info("{}{}", fmt::join(parts, ", "),
                       elapsed ? fmt::format(" ({:.3f} sec)", elapsed->seconds) : "");
  }

  LoggingTensorOptions options_;
  std::optional<SecondOrStepTimer> timer_;
  std::optional<SessionRunValues> last_;
  std::int64_t iteration_ = 0;
};

class NanTensor final : public SessionRunHook {
 public:
  explicit NanTensor(bool fail) : fail_(fail) {}

  void after_run(SessionRunContext& context, const SessionRunValues& values) override {
    if (!values.results.has("loss") || std::isfinite(values.results.at("loss"))) return;
    const std::string message =
        fmt::format("the loss is {} at step {}", values.results.at("loss"), values.global_step);
    if (fail_) throw NonFiniteLoss(message + ": training stops (NanTensorHook)");
    internal::log_warning("{}: asking to stop", message);
    context.request_stop();
  }

 private:
  bool fail_;
};

class FinalOps final : public SessionRunHook {
 public:
  explicit FinalOps(std::function<void(Model&)> final_ops) : final_ops_(std::move(final_ops)) {}
  void end(Model& model) override { final_ops_(model); }

 private:
  std::function<void(Model&)> final_ops_;
};

class FeedFn final : public SessionRunHook {
 public:
  explicit FeedFn(std::function<void()> feed_fn) : feed_fn_(std::move(feed_fn)) {}
  void before_run(SessionRunContext&) override { feed_fn_(); }

 private:
  std::function<void()> feed_fn_;
};

class GlobalStepWaiter final : public SessionRunHook {
 public:
  GlobalStepWaiter(std::int64_t step, double max_wait_secs) : step_(step), max_wait_secs_(max_wait_secs) {}

  void before_run(SessionRunContext& context) override {
    if (done_) return;
    constexpr double kNotice = 30;
    const double begin = steady_seconds();
    double noticed = begin;
    while (context.model().global_step() < step_) {
      const double now = steady_seconds();
      if (now - begin > max_wait_secs_) {
        throw DeadlineExceeded(
            fmt::format("waited {:.0f} s for global step {}, and it is {}: are the other "
                        "workers training? (GlobalStepWaiterHook)",
                        max_wait_secs_, step_, context.model().global_step()));
      }
      if (now - noticed > kNotice) {
        noticed = now;
        internal::log_info("waiting for global step {}: it is {}", step_, context.model().global_step());
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.5, max_wait_secs_)));
    }
    done_ = true;
  }

 private:
  std::int64_t step_;
  double max_wait_secs_;
  bool done_ = false;
};

}  // namespace

std::shared_ptr<SessionRunHook> StopAtStepHook(StopAtStepOptions options) {
  return std::make_shared<StopAtStep>(options);
}
std::shared_ptr<SessionRunHook> CheckpointSaverHook(CheckpointSaverOptions options) {
  return std::make_shared<CheckpointSaver>(std::move(options));
}
std::shared_ptr<SessionRunHook> StepCounterHook(StepCounterOptions options) {
  return std::make_shared<StepCounter>(std::move(options));
}
std::shared_ptr<SessionRunHook> SummarySaverHook(SummarySaverOptions options) {
  return std::make_shared<SummarySaver>(std::move(options));
}
std::shared_ptr<SessionRunHook> LoggingTensorHook(LoggingTensorOptions options) {
  return std::make_shared<LoggingTensor>(std::move(options));
}
std::shared_ptr<SessionRunHook> NanTensorHook(bool fail_on_nan_loss) {
  return std::make_shared<NanTensor>(fail_on_nan_loss);
}
std::shared_ptr<SessionRunHook> FinalOpsHook(std::function<void(Model&)> final_ops) {
  return std::make_shared<FinalOps>(std::move(final_ops));
}
std::shared_ptr<SessionRunHook> FeedFnHook(std::function<void()> feed_fn) {
  return std::make_shared<FeedFn>(std::move(feed_fn));
}
std::shared_ptr<SessionRunHook> GlobalStepWaiterHook(std::int64_t wait_until_step, double max_wait_secs) {
  return std::make_shared<GlobalStepWaiter>(wait_until_step, max_wait_secs);
}

}  // namespace tandem
