#pragma once

#include "strategy/sync_group.h"
#include "strategy/variables.h"

namespace tandem::internal {

// A collective: throws InvalidArgument on every task, naming two tasks and the first difference between their
// models, unless all have the same parameters and buffers: names, shapes, dtypes, and which are trained.
void check_same_model(SyncGroup& tasks, const ReplicaTensors& model);

}  // namespace tandem::internal
