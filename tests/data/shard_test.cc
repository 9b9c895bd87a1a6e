#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "data/support.h"
#include "tandem/dataset.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

Batch keep(Batch batch) {
  return batch;
}

TEST(ShardTest, GivesEveryNthElementFromItsIndexOn) {
  EXPECT_EQ(values_of(numbers(10).shard(3, 0)), (Values{0, 3, 6, 9}));
  EXPECT_EQ(values_of(numbers(10).shard(3, 1)), (Values{1, 4, 7}));
  EXPECT_EQ(values_of(numbers(10).shard(3, 2)), (Values{2, 5, 8}));
  EXPECT_EQ(values_of(numbers(4).shard(1, 0)), (Values{0, 1, 2, 3}));
  EXPECT_EQ(batches_of(numbers(10).batch(2).shard(2, 1)), (Batches{{2, 3}, {6, 7}}));
  EXPECT_EQ(values_of(numbers(3).repeat().shard(2, 1).take(4)), (Values{1, 0, 2, 1}));
}

TEST(ShardTest, IsTheSameOverASourceAsOverOtherViews) {
  for (std::int64_t length = 0; length < 9; ++length) {
    for (std::int64_t shards = 1; shards < 11; ++shards) {
      for (std::int64_t index = 0; index < shards; ++index) {
        const auto over_source = numbers(length).shard(shards, index);
        const auto over_view = numbers(length).map(keep).shard(shards, index);
        EXPECT_EQ(values_of(over_source), values_of(over_view));
        EXPECT_EQ(over_source.cardinality(), std::ssize(values_of(over_source)));
        EXPECT_EQ(over_view.cardinality(), over_source.cardinality());
      }
    }
  }
}

TEST(ShardTest, CanBeShardedAgain) {
  EXPECT_EQ(values_of(numbers(20).shard(2, 1).shard(3, 2)), (Values{5, 11, 17}));
  EXPECT_EQ(values_of(numbers(20).shard(2, 1).skip(1).shard(3, 2)), (Values{7, 13, 19}));
}

TEST(ShardTest, IsEmptyPastTheEndHoweverManyShards) {
  for (const auto& dataset : {numbers(4), numbers(4).map(keep), numbers(4).shard(2, 1)}) {
    EXPECT_EQ(values_of(dataset.shard(kHuge, kHuge - 1)), Values{});
    EXPECT_EQ(dataset.shard(kHuge, kHuge - 1).cardinality(), 0);
    EXPECT_EQ(values_of(dataset.shard(kHuge, 1).shard(kHuge, 0)).size(), 1u);
  }
}

TEST(ShardTest, KnowsItsLengthWhereUpstreamDoes) {
  EXPECT_EQ(numbers(10).batch(3).shard(3, 0).cardinality(), 2);
  EXPECT_EQ(numbers(3).repeat().shard(2, 0).cardinality(), Dataset::kInfinite);
  EXPECT_EQ(counted(3).shard(2, 0).cardinality(), Dataset::kUnknown);
  EXPECT_EQ(numbers(10).batch(3).shard(3, 0).batch_size(), 3);
}

TEST(ShardTest, MakesNoneOfTheOtherShardsExamples) {
  std::atomic<int> made{0};
  std::atomic<int> mapped{0};
  const auto source = Dataset::from_function(1000, [&](std::int64_t index) {
    ++made;
    return Batch{at::Tensor(torch::tensor(index))};
  });
  const auto count = [&](Batch batch) {
    ++mapped;
    return batch;
  };
  values_of(source.shard(10, 3));
  EXPECT_EQ(made, 100);
  auto elements = source.shard(10, 3).shuffle(100).iterate();
  elements.seek({0, 98});
  EXPECT_EQ(made, 100);
  EXPECT_EQ(rest_of(elements).size(), 2u);
  EXPECT_EQ(made, 102);
  values_of(source.shuffle(1000).map(count).shard(10, 3));
  EXPECT_EQ(made, 202);
  EXPECT_EQ(mapped, 100);
}

TEST(ShardTest, DrawsTheNumbersOfTheExampleInItsSource) {
  const auto all = values_of(numbers(9).map(draw));
  EXPECT_EQ(values_of(numbers(9).shard(4, 1).map(draw)), (Values{all[1], all[5]}));
  EXPECT_EQ(values_of(numbers(9).skip(1).shard(4, 0).map(draw)), (Values{all[1], all[5]}));
}

TEST(ShardTest, KeepsTheOrderUnderAndOverAParallelMap) {
  const auto expected = values_of(numbers(300).shard(7, 2));
  for (const int threads : {1, 4}) {
    EXPECT_EQ(values_of(numbers(300).map(keep, {.parallelism = threads}).shard(7, 2)), expected);
    EXPECT_EQ(values_of(numbers(300).shard(7, 2).map(keep, {.parallelism = threads})), expected);
    EXPECT_EQ(values_of(numbers(300).take(300).shard(7, 2).map(keep, {.parallelism = threads})), expected);
  }
}

TEST(ShardTest, PassesOnAnErrorOfItsOwnElementsOnly) {
  const auto source = Dataset::from_function(10, [](std::int64_t index) -> Batch {
    if (index == 4) throw DataLoss("number 4 is damaged");
    return {at::Tensor(torch::tensor(index))};
  });
  EXPECT_EQ(values_of(source.map(keep).shard(2, 1)), (Values{1, 3, 5, 7, 9}));
  auto elements = source.map(keep).shard(2, 0).iterate();
  elements.next();
  elements.next();
  EXPECT_EQ(message_of<DataLoss>([&] { elements.next(); }), "number 4 is damaged");
}

TEST(ShardTest, RefusesAShardThereIsNot) {
  const auto refused = [](std::int64_t num_shards, std::int64_t index) {
    return message_of<InvalidArgument>([&] { numbers(4).shard(num_shards, index); });
  };
  EXPECT_EQ(refused(0, 0), "shard(0, 0): expected at least 1 shard");
  EXPECT_EQ(refused(-2, 1), "shard(-2, 1): expected at least 1 shard");
  EXPECT_EQ(refused(3, 3), "shard(3, 3): expected an index from 0 to 2");
  EXPECT_EQ(refused(3, -1), "shard(3, -1): expected an index from 0 to 2");
}

}  // namespace
}  // namespace tandem
