#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tandem/cluster_resolver.h"
#include "tandem/device.h"

namespace tandem::internal {

// What a task of a strategy of several tasks takes of its machine.

// The devices named; without names every visible GPU, else one CPU device.
std::vector<Device> own_devices(const std::vector<std::string>& names);

// Threads for each replica: the usable cores divided by the replicas of all training tasks on this machine.
int share_of_cores(const ResolvedCluster& resolved, std::size_t replicas);

}  // namespace tandem::internal
