#include "tandem/supervisor.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "cluster/text.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "train/model_state.h"
#include "train/optimizer_binding.h"

namespace tandem {

// What the threads of loop() see; it outlives one that is left behind.
struct Supervisor::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  int loops = 0;  // running
  std::exception_ptr error = {};
  const MonitoredTrainingSession* session = nullptr;  // the one that runs

  void request_stop(const std::exception_ptr& why) {
    const std::lock_guard lock(mutex);
    stopping = true;
    if (why && !error) error = why;
    changed.notify_all();
  }
  void set_session(const MonitoredTrainingSession* running) {
    const std::lock_guard lock(mutex);
    session = running;
  }
};

namespace {

constexpr const char* kDefaultBasename = "model.ckpt";

void check_supervisor(const SupervisorOptions& options) {
  if (!(options.recovery_wait_secs > 0)) {
    throw InvalidArgument(fmt::format("Supervisor: recovery_wait_secs is {}: expected more than 0",
                                      options.recovery_wait_secs));
  }
  const std::string& name = options.checkpoint_basename;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw InvalidArgument(fmt::format(
        "Supervisor: checkpoint_basename is {}: expected a name without a slash", internal::quote(name)));
  }
}

std::string checkpoint_folder(const SupervisorOptions& options) {
  if (options.logdir.empty() || options.checkpoint_basename == kDefaultBasename) return options.logdir;
  return options.logdir + "/" + options.checkpoint_basename;
}

// Where variables live with parameter servers: returns when the chief has given them their values.
void wait_until_ready(const Model& model, double notice_secs) {
  const Strategy& strategy = model.strategy();
  if (strategy.is_chief() || strategy.communicator()) return;
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> period(notice_secs);
  std::mutex mutex;
  std::condition_variable_any ended;
  const std::jthread notices([&](const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, stop, period, [&] { return stop.stop_requested(); })) {
      internal::log_info("Supervisor: waiting for the chief to make the model ready since {:.0f} s",
                         std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  });
  strategy.impl().settle_variables();
  Model::State& state = internal::ModelAccess::state(model);
  if (!state.compiled) return;
  state.global_step = state.compiled->optimizer.binding().updater->global_step().value_or(state.global_step);
}

}  // namespace

Supervisor::Supervisor(Model model, SupervisorOptions options)
    : model_(std::move(model)), options_(std::move(options)), shared_(std::make_shared<Shared>()) {
  check_supervisor(options_);
}

Supervisor::~Supervisor() {
  stop();
}

void Supervisor::managed_session(const std::function<void(MonitoredTrainingSession&)>& fn) {
  // Takes a request to stop to the session, and so to all tasks.
  class TakesRequests final : public SessionRunHook {
   public:
    explicit TakesRequests(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
    void after_run(SessionRunContext& context, const SessionRunValues&) override {
      const std::lock_guard lock(shared_->mutex);
      if (shared_->stopping) context.request_stop();
    }

   private:
    std::shared_ptr<Shared> shared_;
  };
  try {
    MonitoredTrainingSession session(model_,
                                     {.is_chief = options_.is_chief,
                                      .checkpoint_dir = checkpoint_folder(options_),
                                      .scaffold = {.init_fn = options_.init_fn, .saver = options_.saver},
                                      .hooks = {std::make_shared<TakesRequests>(shared_)},
                                      .save_checkpoint_secs = options_.save_model_secs,
                                      .save_summaries_secs = options_.save_summaries_secs,
                                      .max_wait_secs = 0,
                                      .summary_dir = options_.logdir,
                                      .datasets = options_.datasets});
    wait_until_ready(model_, options_.recovery_wait_secs);
    shared_->set_session(&session);
    try {
      fn(session);
    } catch (const OutOfRange&) {
    } catch (...) {
      shared_->set_session(nullptr);
      throw;
    }
    shared_->set_session(nullptr);
    session.close();
  } catch (...) {
    request_stop(std::current_exception());
  }
  stop();
  std::unique_lock lock(shared_->mutex);
  const std::exception_ptr error = std::exchange(shared_->error, nullptr);
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

bool Supervisor::should_stop() const {
  const std::lock_guard lock(shared_->mutex);
  const bool session_stopped = shared_->session && shared_->session->should_stop();
  // Tasks in sync leave the loop together: when the session has taken the request to all of them.
  if (shared_->session && model_.strategy().communicator()) return session_stopped;
  return shared_->stopping || session_stopped;
}

void Supervisor::request_stop(std::exception_ptr error) {
  shared_->request_stop(error);
}

void Supervisor::stop() {
  request_stop();
  std::unique_lock lock(shared_->mutex);
  if (!shared_->changed.wait_for(lock, std::chrono::duration<double>(options_.stop_grace_secs),
                                 [&] { return shared_->loops == 0; })) {
    internal::log_warning("{} functions of Supervisor::loop() still run after {:.0f} s: left behind",
                          shared_->loops, options_.stop_grace_secs);
  }
}

void Supervisor::loop(double timer_interval_secs, std::function<void()> fn) {
  if (!(timer_interval_secs >= 0)) {
    throw InvalidArgument(
        fmt::format("Supervisor::loop: every {} seconds: expected 0 or more", timer_interval_secs));
  }
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->stopping) throw FailedPrecondition("Supervisor::loop: training has stopped");
    ++shared_->loops;
  }
  std::thread([shared = shared_, timer_interval_secs, fn = std::move(fn)] {
    const std::chrono::duration<double> interval(timer_interval_secs);
    auto next = std::chrono::steady_clock::now();
    for (;;) {
      try {
        fn();
      } catch (...) {
        shared->request_stop(std::current_exception());
      }
      next += std::chrono::duration_cast<std::chrono::steady_clock::duration>(interval);
      std::unique_lock lock(shared->mutex);
      if (shared->changed.wait_until(lock, next, [&] { return shared->stopping; })) {
        --shared->loops;
        shared->changed.notify_all();
        return;
      }
    }
  }).detach();  // stop() waits for it
}

bool Supervisor::wait_for_stop(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, timeout, [&] { return shared_->stopping; });
}

}  // namespace tandem
