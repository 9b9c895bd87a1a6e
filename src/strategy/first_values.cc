#include "strategy/first_values.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/random.h"

namespace tandem::internal {
namespace {

// Elements that one generator draws, more or less: enough to be worth making it, and few to draw in vain
// where a part begins or ends within.
constexpr std::int64_t kBlockElements = 1 << 16;

}  // namespace

// The table is cut in blocks of rows, counted from its first one, and each has a generator of its own. A
// block is always drawn whole: libtorch draws other numbers for another count.
void fill_with_first_values(const at::Tensor& part, std::int64_t first_row, const ps::NormalValues& values) {
  const std::int64_t rows = part.size(0);
  const std::int64_t columns = part.size(1);
  if (rows == 0 || columns == 0) return;
  const std::int64_t block_rows = std::max<std::int64_t>(1, kBlockElements / columns);
  const std::int64_t end_row = first_row + rows;
  const std::int64_t first_block = first_row / block_rows;
  const std::int64_t end_block = (end_row - 1) / block_rows + 1;
  at::parallel_for(first_block, end_block, 1, [&](std::int64_t from, std::int64_t to) {
    const torch::NoGradGuard no_grad;
    const at::Tensor drawn = at::empty({block_rows, columns}, part.options());
    for (std::int64_t block = from; block < to; ++block) {
      drawn.normal_(
          0, values.stddev,
          at::detail::createCPUGenerator(seed_of_stream(values.seed, static_cast<std::uint64_t>(block))));
      const std::int64_t block_begin = block * block_rows;
      const std::int64_t begin = std::max(first_row, block_begin);
      const std::int64_t end = std::min(end_row, block_begin + block_rows);
      part.slice(0, begin - first_row, end - first_row)
          .copy_(drawn.slice(0, begin - block_begin, end - block_begin));
    }
  });
}

}  // namespace tandem::internal
