#pragma once

#include <functional>
#include <memory>

#include "tandem/callbacks.h"

namespace tandem::internal {

// progress_bar() with a clock of one's own: now() in seconds, from any beginning.
std::shared_ptr<Callback> progress_bar_with_clock(ProgressBarOptions options, std::function<double()> now);

}  // namespace tandem::internal
