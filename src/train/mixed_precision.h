#pragma once

#include "base/cpu_features.h"
#include "tandem/device.h"
#include "tandem/model.h"
#include "tandem/policy.h"

namespace tandem::internal {

// The same module, its forward under a policy: on whatever thread it is called, and there alone. What it
// gives is float32.
Network with_policy(const Network& network, const Policy& policy, const Device& device);

// Throws InvalidArgument for a policy that a device cannot compute in. Says in one line where it can, but
// slowly: on a CPU without instructions for it.
void check_policy(const Policy& policy, const std::vector<Device>& devices,
                  bool cpu_has_bfloat16 = has_bfloat16_instructions());

}  // namespace tandem::internal
