#pragma once

#include <optional>

#include "cluster/membership_core.h"
#include "rpc/control.pb.h"

namespace tandem::internal {

void encode(const Beat& beat, rpc::Beat& message);

// Empty if it is not a beat of a cluster with that many tasks. Sender and incarnation come from the
// handshake: a beat cannot speak for another.
std::optional<Beat> decode(const rpc::Beat& message, int tasks, int from, const Incarnation& incarnation);

}  // namespace tandem::internal
