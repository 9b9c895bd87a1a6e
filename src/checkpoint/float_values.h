#pragma once

#include <span>
#include <string_view>

#include "checkpoint/file_system.h"

namespace tandem::internal {

// Values of the format's floating-point types, for who looks at checkpoints without torch.

// F16, BF16, F32, F64.
bool is_float(std::string_view dtype);

// Exactly. Both need is_float(dtype) and as many values on both sides.
void to_doubles(std::string_view dtype, Bytes bytes, std::span<double> values);

// To the nearest, ties to even; what is too large becomes infinite.
void from_doubles(std::string_view dtype, std::span<const double> values, std::span<std::byte> bytes);

}  // namespace tandem::internal
