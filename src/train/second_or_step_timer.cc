#include "train/second_or_step_timer.h"

#include <fmt/format.h>

#include <chrono>

#include "tandem/error.h"

namespace tandem::internal {

SecondOrStepTimer::SecondOrStepTimer(const char* what, std::optional<double> every_secs,
                                     std::optional<std::int64_t> every_steps)
    : every_secs_(every_secs), every_steps_(every_steps) {
  if (every_secs.has_value() == every_steps.has_value()) {
    throw InvalidArgument(fmt::format("{}: {} of seconds and steps are given: expected one of them", what,
                                      every_secs ? "both" : "none"));
  }
  if (every_secs && !(*every_secs > 0)) {
    throw InvalidArgument(fmt::format("{}: every {} seconds: expected more than 0", what, *every_secs));
  }
  if (every_steps && *every_steps < 1) {
    throw InvalidArgument(fmt::format("{}: every {} steps: expected 1 or more", what, *every_steps));
  }
}

bool SecondOrStepTimer::should_trigger_for_step(std::int64_t step, double now) const {
  if (!last_) return true;
  if (step == last_->step) return false;
  return every_secs_ ? now >= last_->seconds + *every_secs_ : step >= last_->step + *every_steps_;
}

std::optional<SecondOrStepTimer::Elapsed> SecondOrStepTimer::update_last_triggered_step(std::int64_t step,
                                                                                        double now) {
  std::optional<Elapsed> elapsed;
  if (last_) elapsed = Elapsed{now - last_->seconds, step - last_->step};
  last_ = Moment{now, step};
  return elapsed;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tandem::internal
