#include "summary/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::internal {
namespace {

template <typename Number>
std::vector<HistogramBucket> histogram_of(std::span<const Number> values, std::size_t buckets) {
  double least = std::numeric_limits<double>::infinity();
  double greatest = -least;
  std::size_t count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    ++count;
  }
  std::vector<HistogramBucket> made(buckets);
  if (count == 0) return made;
  if (least == greatest) {
    std::ranges::fill(made, HistogramBucket{least, greatest, 0});
    made.back().count = static_cast<double>(count);
    return made;
  }
  // Halved, if the range is greater than any number.
  const double scale = std::isfinite(greatest - least) ? 1.0 : 0.5;
  const double origin = least * scale;
  const double width = (greatest * scale - origin) / static_cast<double>(buckets);
  for (std::size_t i = 0; i < buckets; ++i) {
    made[i].left = (static_cast<double>(i) * width + origin) / scale;
    if (i > 0) made[i - 1].right = made[i].left;
  }
  made.back().right = greatest;
  const auto last = static_cast<double>(buckets - 1);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    // A range of the smallest numbers there are can have a width of 0.
    const double index = width > 0 ? std::floor((value * scale - origin) / width) : last;
    made[static_cast<std::size_t>(std::min(index, last))].count += 1;
  }
  return made;
}

}  // namespace

std::vector<HistogramBucket> make_histogram(std::span<const float> values, std::size_t buckets) {
  return histogram_of(values, buckets);
}

std::vector<HistogramBucket> make_histogram(std::span<const double> values, std::size_t buckets) {
  return histogram_of(values, buckets);
}

}  // namespace tandem::internal
