#pragma once

#include <cstddef>

#include "cli/finding.h"
#include "tandem/cluster_resolver.h"

namespace tandem::internal {

// Variables that make other programs go through a proxy.
Finding check_proxies(const Environment& environment);

// How many cores each of the tasks on this machine can have.
Finding check_cores(int cores, int tasks_here);

// Whether the process may have as many files and connections open as that many tasks need.
Finding check_open_files(std::size_t limit, std::size_t tasks);

}  // namespace tandem::internal
