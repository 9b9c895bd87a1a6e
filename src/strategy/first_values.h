#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ps/plan.h"

namespace tandem::internal {

// Fills a part of a table, [rows, columns] from row `first_row` on, with its first values. Every row gets the
// same ones whichever part it is in, and with any number of threads.
void fill_with_first_values(const at::Tensor& part, std::int64_t first_row, const ps::NormalValues& values);

}  // namespace tandem::internal
