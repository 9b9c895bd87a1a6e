#pragma once

#include <string>

#include "cluster/membership_core.h"

namespace tandem::internal {

// "dead", "unreachable", ...
const char* name_of(Evidence evidence);

// The same as the end of a sentence that begins with the task: "is dead: its connection broke and ..."
const char* story_of(Evidence evidence);

// What `tandem status` says of a task: "running", "silent", "missing", ...
const char* state_of(const Sighting& sighting);

}  // namespace tandem::internal
