#include "base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::internal {
namespace {

TEST(SeedOfStream, GivesEveryStepAndReplicaItsOwn) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (std::uint64_t step = 0; step < 500; ++step) {
      for (std::uint64_t replica = 0; replica < 8; ++replica)
        seeds.insert(seed_of_stream(seed_of_stream(seed, step), replica));
    }
  }
  EXPECT_EQ(seeds.size(), 4u * 500 * 8);
}

TEST(Mix, ChangesAboutHalfOfTheBitsForEachBitOfItsInput) {
  for (int bit = 0; bit < 64; ++bit) {
    const int changed = __builtin_popcountll(mix(kCounterStep) ^ mix(kCounterStep ^ (1ULL << bit)));
    EXPECT_GT(changed, 12) << bit;
    EXPECT_LT(changed, 52) << bit;
  }
}

}  // namespace
}  // namespace tandem::internal
