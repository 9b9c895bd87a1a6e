#pragma once

#include <set>
#include <string>

#include "tandem/cluster_resolver.h"

namespace tandem::internal {

// "0,2-3" to {0, 2, 3}. Throws InvalidArgument that shows the value and a correct one.
std::set<int> parse_cpu_list(const std::string& text);

// TANDEM_VISIBLE_CPUS is to cores what CUDA_VISIBLE_DEVICES is to GPUs: the calling thread, and those it
// starts from now on, run on these alone. Nothing happens if it is not set. Throws InvalidArgument if it
// names a core that this process does not have.
void keep_to_visible_cpus(const Environment& environment = process_environment());

}  // namespace tandem::internal
