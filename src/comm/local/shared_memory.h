#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::internal {

// Elements [begin, end) of a buffer of `elements` that seat number `seat` looks after. Cut at cache lines, so
// that no two seats write to one.
std::pair<std::int64_t, std::int64_t> share_of(std::int64_t elements, int seat, int seats);

// destination[i] = sources[0][i] + sources[1][i] + ... for i in [begin, end), in that order, for every
// destination. A destination may be one of the sources. All are contiguous, on the CPU, of the first source's
// dtype.
void sum_range(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& destinations,
               std::int64_t begin, std::int64_t end);

}  // namespace tandem::internal
