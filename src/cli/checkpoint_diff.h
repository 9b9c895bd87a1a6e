#pragma once

#include <string>
#include <vector>

#include "cli/tensor_set.h"

namespace tandem::internal {

struct Comparison {
  std::string text;  // a line for each tensor that differs, and one that counts them
  bool same;
};

// Values differ if they are further apart than `tolerance`; of types without fractions, if they are not
// equal.
Comparison compare(const TensorSet& a, const TensorSet& b, double tolerance);

struct Average {
  // Of which `tensors` are parts.
  std::vector<std::vector<std::byte>> values;
  std::vector<TensorBytes> tensors;
};

// The mean of each floating-point value, added up in double precision; whatever else is that of the last one.
// Throws InvalidArgument, naming the tensor, unless all have the same tensors.
Average average(const std::vector<TensorSet>& sets);

}  // namespace tandem::internal
