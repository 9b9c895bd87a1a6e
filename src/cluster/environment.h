#pragma once

#include <optional>
#include <string>

#include "tandem/cluster_resolver.h"

namespace tandem::internal {

// environment.cc is the one place that reads variables of the environment; elsewhere their values arrive as
// arguments.

// TF_CONFIG as it stands, if it is set and not empty.
std::optional<std::string> tf_config_variable();

// A variable's whole number from `lowest` on, if it is set. Throws InvalidArgument with its name and value.
std::optional<int> int_variable(const Environment& environment, const char* name, int lowest);

}  // namespace tandem::internal
