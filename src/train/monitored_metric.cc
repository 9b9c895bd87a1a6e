#include "train/monitored_metric.h"

#include <fmt/ranges.h>

#include <ranges>
#include <utility>

#include "base/log.h"
#include "tandem/model.h"

namespace tandem::internal {

MonitoredMetric::MonitoredMetric(std::string who, std::string name)
    : who_(std::move(who)), name_(std::move(name)) {}

std::optional<double> MonitoredMetric::in(const Logs& logs, const Model& model) {
  if (logs.has(name_)) return logs.at(name_);
  if (!std::exchange(warned_, true) && model.strategy().is_chief()) {
    log_warning("{} goes by \"{}\", which is not in the logs of this epoch; there are: {}", who_, name_,
                fmt::join(logs | std::views::keys, ", "));
  }
  return std::nullopt;
}

std::optional<double> remembered(const CallbackState& state, const std::string& name) {
  const auto found = state.numbers.find(name);
  if (found == state.numbers.end()) return std::nullopt;
  return found->second;
}

}  // namespace tandem::internal
