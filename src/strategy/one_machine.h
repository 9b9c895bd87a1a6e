#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategy/strategy_impl.h"

namespace tandem::internal {

// The named devices, or the default ones if none is named.
std::vector<Device> devices_or_default(const std::vector<std::string>& names);

// What suits the devices: shared memory between CPU replicas, reduction to one device as soon as there is a
// GPU.
std::shared_ptr<CrossDeviceOps> default_cross_device_ops(const std::vector<Device>& devices);

// Logs which replicas a strategy has and how their gradients meet.
void announce(const char* strategy, StrategyImpl& impl);

}  // namespace tandem::internal
