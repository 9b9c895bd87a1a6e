#include "train/plateau_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

bool greater_is_better(const PlateauRuleOptions& options) {
  if (options.mode != MonitorMode::kAuto) return options.mode == MonitorMode::kMax;
  return options.monitor.find("acc") != std::string::npos;
}

template <typename Number>
void require_not_negative(const char* name, Number value) {
  if (!(value >= 0)) {
    throw InvalidArgument(fmt::format("reduce on plateau: {} is {}: expected 0 or more", name, value));
  }
}

}  // namespace

PlateauRule::PlateauRule(PlateauRuleOptions options)
    : options_(std::move(options)), greater_is_better_(greater_is_better(options_)) {
  if (!(options_.factor > 0 && options_.factor < 1)) {
    throw InvalidArgument(fmt::format("reduce on plateau: factor is {}: expected more than 0 and less than 1",
                                      options_.factor));
  }
  require_not_negative("patience", options_.patience);
  require_not_negative("min_delta", options_.min_delta);
  require_not_negative("cooldown", options_.cooldown);
  require_not_negative("min_learning_rate", options_.min_learning_rate);
}

std::optional<double> PlateauRule::end_epoch(double value, double learning_rate) {
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.wait = 0;
  }
  if (better(value)) {
    state_.best = value;
    state_.wait = 0;
    return std::nullopt;
  }
  if (state_.cooldown > 0) return std::nullopt;
  ++state_.wait;
  if (state_.wait < options_.patience || learning_rate <= options_.min_learning_rate) return std::nullopt;
  state_.cooldown = options_.cooldown;
  state_.wait = 0;
  return std::max(learning_rate * options_.factor, options_.min_learning_rate);
}

bool PlateauRule::better(double value) const {
  if (greater_is_better_) return value > state_.best.value_or(-INFINITY) + options_.min_delta;
  return value < state_.best.value_or(INFINITY) - options_.min_delta;
}

}  // namespace tandem::internal
