#pragma once

#include <optional>
#include <string>

namespace tandem::internal {

// The one place that reads variables of the environment; elsewhere their values arrive as arguments.

// TF_CONFIG as it stands, if it is set and not empty.
std::optional<std::string> tf_config_variable();

}  // namespace tandem::internal
