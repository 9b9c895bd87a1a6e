#pragma once

#include <span>
#include <string>
#include <utility>

namespace tandem::internal {

// The metrics of an epoch by name: the values of a Logs, {logs.begin(), logs.end()}.
using LogValues = std::span<const std::pair<std::string, double>>;

}  // namespace tandem::internal
