#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem::internal {

// From `left` up to, but without, `right`; the last bucket has `right` too.
struct HistogramBucket {
  double left = 0;
  double right = 0;
  double count = 0;

  friend bool operator==(const HistogramBucket&, const HistogramBucket&) = default;
};

// TensorFlow's rule: `buckets` (1 or more) of equal width between the smallest and the greatest value.
// Without values all are zero; if all values are equal so are all edges, and the last bucket has them. Unlike
// TensorFlow's, values that are infinite or no numbers are left out; there they spoil all buckets.
std::vector<HistogramBucket> make_histogram(std::span<const float> values, std::size_t buckets);
std::vector<HistogramBucket> make_histogram(std::span<const double> values, std::size_t buckets);

}  // namespace tandem::internal
