#include "summary/histogram.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace tandem::internal {
namespace {

using Buckets = std::vector<HistogramBucket>;

double total(const Buckets& buckets) {
  return std::accumulate(buckets.begin(), buckets.end(), 0.0,
                         [](double sum, const HistogramBucket& bucket) { return sum + bucket.count; });
}

TEST(Histogram, HasTheLastEdgeInTheLastBucket) {
  const std::vector<float> values{0, 1, 2, 3, 4, 4};
  EXPECT_EQ(make_histogram(values, 2), (Buckets{{0, 2, 2}, {2, 4, 4}}));
  EXPECT_EQ(make_histogram(values, 4), (Buckets{{0, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 4, 3}}));
}

TEST(Histogram, OfOneValueHasItInTheLastBucket) {
  EXPECT_EQ(make_histogram(std::vector<double>{-1.5, -1.5, -1.5}, 2),
            (Buckets{{-1.5, -1.5, 0}, {-1.5, -1.5, 3}}));
}

TEST(Histogram, OfNothingIsAllZero) {
  EXPECT_EQ(make_histogram(std::vector<float>{}, 2), Buckets(2));
}

TEST(Histogram, LeavesOutWhatIsNoNumber) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(make_histogram(std::vector<double>{nan, 0, inf, 1, -inf}, 2),
            (Buckets{{0, 0.5, 1}, {0.5, 1, 1}}));
  EXPECT_EQ(make_histogram(std::vector<double>{nan, inf}, 3), Buckets(3));
}

TEST(Histogram, TakesTheGreatestAndTheSmallestNumbers) {
  const double most = std::numeric_limits<double>::max();
  const Buckets wide = make_histogram(std::vector<double>{-most, 0, most}, 2);
  EXPECT_EQ(wide, (Buckets{{-most, 0, 1}, {0, most, 2}}));
  const double least = std::numeric_limits<double>::denorm_min();
  const Buckets narrow = make_histogram(std::vector<double>{0, least}, 30);
  EXPECT_EQ(total(narrow), 2);
  EXPECT_EQ(narrow.back().right, least);
}

TEST(Histogram, CountsEveryValueOnce) {
  std::vector<float> values;
  for (int i = 0; i < 10'000; ++i) values.push_back(static_cast<float>((i * 7919) % 10'007) / 3.0F - 1000.0F);
  for (const std::size_t buckets : {1u, 2u, 30u, 1000u}) {
    const Buckets made = make_histogram(values, buckets);
    ASSERT_EQ(made.size(), buckets);
    EXPECT_EQ(total(made), 10'000);
    for (std::size_t i = 1; i < made.size(); ++i) EXPECT_EQ(made[i].left, made[i - 1].right);
  }
}

}  // namespace
}  // namespace tandem::internal
