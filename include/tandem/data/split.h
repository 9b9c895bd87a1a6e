#pragma once

namespace tandem::data {

// Which of a set's two parts.
enum class Split { kTrain, kTest };

}  // namespace tandem::data
