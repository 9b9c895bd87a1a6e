#pragma once

#include <cstdint>
#include <optional>

namespace tandem::internal {

// TensorFlow's SecondOrStepTimer: says when something that is done every so many steps, or seconds, is due.
// It is the first time that it is asked, and then when so many have passed since the last time that it was
// done. Never twice for one step.
class SecondOrStepTimer {
 public:
  // One of the two must be given, above 0; throws InvalidArgument, which `what` begins.
  SecondOrStepTimer(const char* what, std::optional<double> every_secs,
                    std::optional<std::int64_t> every_steps);

  // `now`: seconds of a clock that never goes back.
  bool should_trigger_for_step(std::int64_t step, double now) const;

  struct Elapsed {
    double seconds = 0;
    std::int64_t steps = 0;
  };
  // It is done now. What has passed since the last time; nothing the first time.
  std::optional<Elapsed> update_last_triggered_step(std::int64_t step, double now);

  void reset() { last_.reset(); }

 private:
  struct Moment {
    double seconds = 0;
    std::int64_t step = 0;
  };

  std::optional<double> every_secs_;
  std::optional<std::int64_t> every_steps_;
  std::optional<Moment> last_;
};

// Seconds, from some moment on.
double steady_seconds();

}  // namespace tandem::internal
