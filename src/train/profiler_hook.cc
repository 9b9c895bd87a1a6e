#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/files.h"
#include "base/log.h"
#include "strategy/strategy_impl.h"
#include "tandem/session_hooks.h"
#include "trace/chrome_trace.h"
#include "trace/recorder.h"
#include "train/op_tracer.h"
#include "train/second_or_step_timer.h"

namespace tandem {
namespace {

class Profiler final : public SessionRunHook {
 public:
  explicit Profiler(ProfilerOptions options)
      : options_(std::move(options)), timer_("ProfilerHook", options_.save_secs, options_.save_steps) {}
  ~Profiler() override { stop(); }

  // Not the first step, which makes what later ones find made.
  void before_run(SessionRunContext&) override {
    stop();  // of a step that did not end
    if (!next_step_ || !timer_.should_trigger_for_step(*next_step_, internal::steady_seconds())) return;
    if (!internal::TraceRecorder::start()) return;  // somebody else records this one
    ops_.emplace(internal::OpTracerOptions{.arrows = options_.show_dataflow, .memory = options_.show_memory});
  }

  void after_run(SessionRunContext& context, const SessionRunValues& values) override {
    next_step_ = values.global_step + 1;
    if (!ops_) return;
    timer_.update_last_triggered_step(values.global_step, internal::steady_seconds());
    internal::TraceRecording recording = stop();
    internal::OpTracer::pair_arrows(recording);
    if (recording.dropped > 0) {
      internal::log_warning("the trace of step {} lacks {} events: it is too long", values.global_step,
                            recording.dropped);
    }
    write(context.model().strategy(), values.global_step, recording);
  }

 private:
  internal::TraceRecording stop() {
    if (!ops_) return {};
    ops_.reset();
    return internal::TraceRecorder::stop();
  }

  // A trace that cannot be written is no reason to stop a training.
  void write(const Strategy& strategy, std::int64_t step, const internal::TraceRecording& recording) const {
    const std::string task = fmt::format("worker {}", strategy.impl().input_pipeline());
    const std::string file = strategy.is_chief()
                                 ? fmt::format("timeline-{}.json", step)
                                 : fmt::format("timeline-{}.{}.json", step, strategy.impl().input_pipeline());
    const std::filesystem::path folder = options_.output_dir.empty() ? "." : options_.output_dir;
    try {
      std::filesystem::create_directories(folder);
      internal::replace_file(folder / file, internal::to_chrome_trace(recording, task));
    } catch (const std::exception& error) {
      internal::log_warning("the trace of step {} is not written: {}", step, error.what());
    }
  }

  ProfilerOptions options_;
  internal::SecondOrStepTimer timer_;
  std::optional<std::int64_t> next_step_;
  std::optional<internal::OpTracer> ops_;  // while a step is recorded
};

}  // namespace

std::shared_ptr<SessionRunHook> ProfilerHook(ProfilerOptions options) {
  return std::make_shared<Profiler>(std::move(options));
}

}  // namespace tandem
