#pragma once

#include <chrono>
#include <functional>

#include "rpc/control.pb.h"
#include "rpc/handshake.h"

namespace tandem::internal {

// Asks one task what it knows of all, without being a task. Calls `show` for every table until it returns
// false. Throws Unavailable if the task cannot be reached, says nothing for `patience`, or ends;
// InvalidArgument if it refuses.
void observe(const Identity& self, const TaskId& task, std::chrono::milliseconds patience,
             const std::function<bool(const rpc::Table&)>& show);

}  // namespace tandem::internal
