#pragma once

#include <optional>

#include "strategy/sync_group.h"
#include "tandem/batch.h"

namespace tandem::internal {

// A collective: a batch without rows, in the shape that the first task which has one gives. At least one
// must.
Batch agree_on_shape(SyncGroup& tasks, const std::optional<Batch>& mine);

}  // namespace tandem::internal
