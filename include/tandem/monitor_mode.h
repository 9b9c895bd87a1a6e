#pragma once

namespace tandem {

// Whether smaller or greater values of a monitored metric are better. kAuto goes by the metric's name, as
// Keras does: greater is better for accuracies and the like, smaller for everything else.
enum class MonitorMode { kAuto, kMin, kMax };

}  // namespace tandem
