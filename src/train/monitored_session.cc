#include "tandem/monitored_session.h"

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <thread>

#include "base/log.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "trace/recorder.h"
#include "train/agreement.h"
#include "train/model_state.h"
#include "train/preemption.h"
#include "train/second_or_step_timer.h"

namespace tandem {
namespace {

using Hooks = std::vector<std::shared_ptr<SessionRunHook>>;

// What a pair in steps and seconds comes to, given the default of one of them. 0: neither.
struct Period {
  std::optional<std::int64_t> steps = {};
  std::optional<double> secs = {};

  bool off() const { return !steps && !secs; }
};

Period choose_period(const char* what, std::optional<std::int64_t> steps, std::optional<double> secs,
                     Period by_default) {
  if (steps && secs) {
    throw InvalidArgument(fmt::format("{}: both steps and seconds are given: expected one of them", what));
  }
  if (!steps && !secs) return by_default;
  if ((steps && *steps < 0) || (secs && *secs < 0)) {
    throw InvalidArgument(fmt::format("{} is negative: expected 0 (never) or more", what));
  }
  if (steps == 0 || secs == 0.0) return {};
  return {steps, secs};
}

void check_chief(const MonitoredTrainingSessionOptions& options, const Strategy& strategy) {
  if (!options.is_chief || *options.is_chief == strategy.is_chief()) return;
  throw InvalidArgument(
      fmt::format("MonitoredTrainingSession: is_chief is {}, but this task is {}the chief: a cluster has "
                  "one, its chief task "
                  "or else worker 0; leave is_chief out",
                  *options.is_chief, strategy.is_chief() ? "" : "not "));
}

bool is_retryable(const Error& error) {
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kAborted;
}

}  // namespace

struct MonitoredTrainingSession::Impl {
  Impl(Model model_, MonitoredTrainingSessionOptions options_)
      : model(std::move(model_)), options(std::move(options_)) {}

  Model model;
  MonitoredTrainingSessionOptions options;
  Hooks hooks = {};
  std::optional<CheckpointManager> checkpoints = {};
  std::optional<internal::PreemptionWatch> watch = {};
  int exceptions = std::uncaught_exceptions();
  // Another thread may ask should_stop().
  std::atomic<bool> stopped = false;
  std::atomic<bool> failed = false;
  std::atomic<bool> closed = false;
  std::optional<std::int64_t> preempted_at = {};

  Model::State& state() const { return internal::ModelAccess::state(model); }
  // Tasks in sync restore and save together; else the chief does it for all.
  bool restores() const { return model.strategy().is_chief() || model.strategy().communicator(); }

  void add_own_hooks();
  void create();
  bool step(const std::function<Logs()>& fn);
  void agree(const SessionRunValues& values);
  void recover(const Error& error, double deadline);
};

// What MonitoredTrainingSession itself adds, behind the user's.
void MonitoredTrainingSession::Impl::add_own_hooks() {
  const bool is_chief = model.strategy().is_chief();
  const std::string& summary_dir = options.summary_dir.empty() ? options.checkpoint_dir : options.summary_dir;
  const Period summaries = choose_period("save_summaries", options.save_summaries_steps,
                                         options.save_summaries_secs, {.steps = 100});
  SummaryWriter writer;
  if (is_chief && !summary_dir.empty() && (!summaries.off() || options.log_step_count_steps > 0)) {
    writer = SummaryWriter(
        summary_dir,
        {.purge_step = model.global_step() > 0 ? std::optional(model.global_step() + 1) : std::nullopt});
  }
  if (is_chief && options.log_step_count_steps > 0) {
    hooks.push_back(
        StepCounterHook({.every_n_steps = options.log_step_count_steps, .summary_writer = writer}));
  }
  if (writer && !summaries.off()) {
    hooks.push_back(SummarySaverHook(
        {.save_steps = summaries.steps, .save_secs = summaries.secs, .summary_writer = writer}));
  }
  const Period saves = choose_period("save_checkpoint", options.save_checkpoint_steps,
                                     options.save_checkpoint_secs, {.secs = 600});
  if (restores() && !options.checkpoint_dir.empty() && !saves.off()) {
    hooks.push_back(CheckpointSaverHook({.checkpoint_dir = options.checkpoint_dir,
                                         .save_secs = saves.secs,
                                         .save_steps = saves.steps,
                                         .saver = options.scaffold.saver,
                                         .datasets = options.datasets}));
  }
}

void MonitoredTrainingSession::Impl::create() {
  std::optional<RestoredCheckpoint> restored;
  if (checkpoints && restores()) restored = checkpoints->restore();
  state().resume.reset();  // where a fit() stood is of no use here
  if (restored && model.strategy().is_chief()) {
    internal::log_info("going on after step {}, from {}", restored->global_step, restored->path);
  }
  if (!restored && restores() && options.scaffold.init_fn && model.global_step() == 0) {
    options.scaffold.init_fn(model);
  }
}

void MonitoredTrainingSession::Impl::agree(const SessionRunValues& values) {
  const internal::Agreement agreed = internal::agree(state());
  const ResumePoint point{.global_step = values.global_step,
                          .save_requested = agreed.save_requested,
                          .preempted = agreed.preempted};
  for (const auto& hook : hooks) hook->on_resumable(point);
  stopped = state().stop_requested;
  if (agreed.preempted) preempted_at = values.global_step;
}

bool MonitoredTrainingSession::Impl::step(const std::function<Logs()>& fn) {
  SessionRunContext context(model);
  for (const auto& hook : hooks) hook->before_run(context);
  SessionRunValues values;
  try {
    const internal::TraceSpan span("step", model.global_step() + 1);
    values.results = fn();
  } catch (const OutOfRange&) {
    stopped = true;
    return false;
  }
  values.global_step = model.global_step();
  for (const auto& hook : hooks) hook->after_run(context, values);
  agree(values);
  return true;
}

// Tries until the deadline: what is gone may take a while to come back.
void MonitoredTrainingSession::Impl::recover(const Error& error, double deadline) {
  constexpr std::chrono::seconds kPause(1);
  internal::log_warning("{}: making the session anew from the last checkpoint", error.what());
  for (;;) {
    try {
      state().variables->look_again();
      create();
      for (const auto& hook : hooks) hook->after_create_session(model);
      return;
    } catch (const Error& again) {
      if (!is_retryable(again) || internal::steady_seconds() > deadline) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
}

MonitoredTrainingSession::MonitoredTrainingSession(Model model, MonitoredTrainingSessionOptions options) {
  check_chief(options, model.strategy());
  impl_ = std::make_unique<Impl>(std::move(model), std::move(options));
  Impl& impl = *impl_;
  impl.model.strategy().impl().or_stop_all([&] {
    if (!impl.options.checkpoint_dir.empty()) {
      impl.checkpoints.emplace(impl.model, impl.options.checkpoint_dir, impl.options.scaffold.saver);
      for (const auto& [name, dataset] : impl.options.datasets) impl.checkpoints->track(name, *dataset);
      impl.watch.emplace();
    }
    impl.state().stop_requested = impl.state().save_requested = false;
    impl.hooks = impl.options.hooks;
    if (impl.model.strategy().is_chief()) {
      const auto& more = impl.options.chief_only_hooks;
      impl.hooks.insert(impl.hooks.end(), more.begin(), more.end());
    }
    for (const auto& hook : impl.hooks) hook->begin(impl.model);
    const std::size_t users = impl.hooks.size();
    impl.create();
    impl.add_own_hooks();
    for (std::size_t i = users; i < impl.hooks.size(); ++i) impl.hooks[i]->begin(impl.model);
    for (const auto& hook : impl.hooks) hook->after_create_session(impl.model);
  });
  impl.stopped = impl.state().stop_requested;
  if (!impl.options.master.empty()) internal::log_info("session of {} is ready", impl.options.master);
}

MonitoredTrainingSession::~MonitoredTrainingSession() {
  if (!impl_ || std::uncaught_exceptions() > impl_->exceptions) return;
  try {
    close();
  } catch (const std::exception& error) {
    internal::log_warning("closing the session: {}", error.what());
  }
}

bool MonitoredTrainingSession::should_stop() const {
  return impl_->stopped || impl_->failed || impl_->closed;
}

bool MonitoredTrainingSession::run_step(const std::function<Logs()>& step) {
  if (should_stop()) {
    throw FailedPrecondition("run() of a session that has stopped: ask should_stop() before each step");
  }
  const bool can_recover = !impl_->model.strategy().communicator();
  const double deadline = internal::steady_seconds() + impl_->options.max_wait_secs;
  for (;;) {
    try {
      const bool done = impl_->model.strategy().impl().or_stop_all([&] { return impl_->step(step); });
      if (!impl_->preempted_at) return done;
      break;
    } catch (const Error& error) {
      if (!can_recover || !is_retryable(error) || internal::steady_seconds() > deadline) {
        impl_->failed = true;
        throw;
      }
      try {
        impl_->recover(error, deadline);
      } catch (...) {
        impl_->failed = true;
        throw;
      }
    } catch (...) {
      impl_->failed = true;
      throw;
    }
  }
  // No error of this task's that the others would have to be told: they have stopped at the same step.
  impl_->failed = true;
  if (internal::SyncGroup* tasks = impl_->model.strategy().impl().tasks()) tasks->stop_together();
  throw Preempted(
      fmt::format("told to go (SIGTERM): stopped after step {}; start the same command again to go on",
                  *impl_->preempted_at));
}

void MonitoredTrainingSession::close() {
  if (impl_->closed) return;
  impl_->closed = true;
  if (!impl_->failed) {
    const double begin = internal::steady_seconds();
    impl_->model.strategy().impl().or_stop_all([&] {
      for (const auto& hook : impl_->hooks) hook->end(impl_->model);
    });
    if (const double took = internal::steady_seconds() - begin;
        took > impl_->options.stop_grace_period_secs) {
      internal::log_warning("closing the session took {:.0f} s", took);
    }
  }
  impl_->watch.reset();
}

}  // namespace tandem
