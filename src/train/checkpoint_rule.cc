#include "train/checkpoint_rule.h"

#include <fmt/format.h>

#include <cmath>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

bool greater_is_better(const BestCheckpointRuleOptions& options) {
  if (options.mode != MonitorMode::kAuto) return options.mode == MonitorMode::kMax;
  return options.monitor.find("acc") != std::string::npos || options.monitor.starts_with("fmeasure");
}

}  // namespace

BestCheckpointRule::BestCheckpointRule(BestCheckpointRuleOptions options)
    : greater_is_better_(greater_is_better(options)), best_(options.initial_value_threshold) {}

bool BestCheckpointRule::improves(double value) {
  const bool better =
      greater_is_better_ ? value > best_.value_or(-INFINITY) : value < best_.value_or(INFINITY);
  if (better) best_ = value;
  return better;
}

EveryBatches::EveryBatches(std::int64_t n) : n_(n) {
  if (n < 1) throw InvalidArgument(fmt::format("save_freq is {}: expected 1 batch or more", n));
}

bool EveryBatches::end_batch(std::int64_t batch) {
  // Not after the last one: another epoch.
  since_saving_ += batch <= last_batch_ ? batch + 1 : batch - last_batch_;
  last_batch_ = batch;
  if (since_saving_ < n_) return false;
  since_saving_ = 0;
  return true;
}

}  // namespace tandem::internal
