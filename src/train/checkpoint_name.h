#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/log_values.h"

namespace tandem::internal {

struct CheckpointMoment {
  std::int64_t epoch = 0;                  // from 0
  std::optional<std::int64_t> batch = {};  // from 0; absent at the end of an epoch
};

// Fills in a pattern such as "weights.{epoch:02d}-{val_loss:.2f}" as Python's str.format does: epoch and
// batch are counted from 1; all logs are there by their names; "{{" is a brace. Throws InvalidArgument,
// naming the pattern, for a field that there is not (with those there are) and for a format that does not
// fit.
std::string checkpoint_name(const std::string& pattern, const CheckpointMoment& moment, LogValues logs);

}  // namespace tandem::internal
