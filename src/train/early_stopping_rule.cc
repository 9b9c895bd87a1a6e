#include "train/early_stopping_rule.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

bool greater_is_better(const EarlyStoppingRuleOptions& options) {
  if (options.mode != MonitorMode::kAuto) return options.mode == MonitorMode::kMax;
  const std::string& name = options.monitor;
  return name.ends_with("acc") || name.ends_with("accuracy") || name.ends_with("auc");
}

}  // namespace

EarlyStoppingRule::EarlyStoppingRule(EarlyStoppingRuleOptions options)
    : options_(std::move(options)), greater_is_better_(greater_is_better(options_)) {
  if (options_.patience < 0) {
    throw InvalidArgument(
        fmt::format("early stopping: patience is {}: expected 0 or more", options_.patience));
  }
  if (!(options_.min_delta >= 0)) {
    throw InvalidArgument(
        fmt::format("early stopping: min_delta is {}: expected 0 or more", options_.min_delta));
  }
}

EarlyStoppingRule::Verdict EarlyStoppingRule::end_epoch(std::int64_t epoch, double value) {
  if (epoch < options_.start_from_epoch) return {};
  const bool first = !state_.best_epoch;
  if (first) state_.best_epoch = epoch;
  ++state_.wait;
  if (better(value, state_.best)) {
    state_.best = value;
    state_.best_epoch = epoch;
    if (!options_.baseline || better(value, options_.baseline)) state_.wait = 0;
    return {.keep = true};
  }
  // Never after the very first epoch: there is nothing yet that it could have improved upon.
  return {.keep = first, .stop = state_.wait >= options_.patience && epoch > 0};
}

bool EarlyStoppingRule::better(double value, const std::optional<double>& than) const {
  if (greater_is_better_) return value - options_.min_delta > than.value_or(-INFINITY);
  return value + options_.min_delta < than.value_or(INFINITY);
}

}  // namespace tandem::internal
