#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <utility>

#include "data/auto_shard.h"
#include "data/split_rule.h"
#include "data/support.h"
#include "tandem/dataset.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;

TEST(RebatchTest, CutsTheRowsAnewInTheSameOrder) {
  EXPECT_EQ(batches_of(rebatch(numbers(10).batch(4), {2})),
            (Batches{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}}));
  EXPECT_EQ(batches_of(rebatch(numbers(10).batch(4), {3, 1})),
            (Batches{{0, 1, 2}, {3}, {4, 5, 6}, {7}, {8, 9}}));
  EXPECT_EQ(batches_of(rebatch(numbers(10).batch(4), {3})), (Batches{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}}));
  EXPECT_EQ(batches_of(rebatch(numbers(10).batch(4), {9})), (Batches{{0, 1, 2, 3, 4, 5, 6, 7, 8}, {9}}));
  EXPECT_EQ(batches_of(rebatch(numbers(0).batch(4), {2})), Batches{});
}

TEST(RebatchTest, GoesOverTheEndOfAPass) {
  EXPECT_EQ(batches_of(rebatch(numbers(3).batch(2).repeat(2), {2})), (Batches{{0, 1}, {2, 0}, {1, 2}}));
}

TEST(RebatchTest, MakesBatchesOfNoRowsOfTheRightShape) {
  const auto dataset =
      rebatch(Dataset::from_tensors(torch::ones({3, 2, 5}), torch::arange(3)).batch(1), {0, 1});
  auto batches = dataset.iterate();
  for (int i = 0; i < 3; ++i) {
    const auto none = batches.next();
    EXPECT_EQ(none->x.tensor().sizes(), (at::IntArrayRef{0, 2, 5}));
    EXPECT_EQ(none->y.tensor().sizes(), (at::IntArrayRef{0}));
    EXPECT_EQ(none->rows(), 0);
    EXPECT_EQ(batches.next()->y.tensor().item<std::int64_t>(), i);
  }
  EXPECT_FALSE(batches.next());
  EXPECT_EQ(batches_of(rebatch(numbers(2).batch(1), {1, 0})), (Batches{{0}, {}, {1}}));
}

TEST(RebatchTest, KeepsLabelsAndWeightsWithTheirRows) {
  const auto dataset =
      rebatch(Dataset::from_tensors(Tensors::Map{{"a", torch::arange(5)}, {"b", -torch::arange(5)}},
                                    torch::arange(5) * 10, torch::arange(5) * 0.5)
                  .batch(2),
              {3});
  auto batches = dataset.iterate();
  const auto first = batches.next();
  EXPECT_EQ(first->rows(), 3);
  EXPECT_TRUE(first->x["a"].equal(torch::tensor({0, 1, 2}, torch::kLong)));
  EXPECT_TRUE(first->x["b"].equal(torch::tensor({0, -1, -2}, torch::kLong)));
  EXPECT_TRUE(first->y.tensor().equal(torch::tensor({0, 10, 20}, torch::kLong)));
  EXPECT_TRUE(first->sample_weight.equal(torch::tensor({0.0f, 0.5f, 1.0f})));
  EXPECT_EQ(batches.next()->rows(), 2);
}

TEST(RebatchTest, CopiesNothingWhereABatchIsPartOfAnOldOne) {
  at::Tensor seen;
  const auto look = [&](Batch batch) {
    seen = batch.x.tensor();
    return batch;
  };
  auto batches = rebatch(numbers(8).batch(4).map(look), {2}).iterate();
  const at::Tensor first = batches.next()->x;
  const at::Tensor second = batches.next()->x;
  EXPECT_EQ(first.data_ptr(), seen.data_ptr());
  EXPECT_EQ(second.data_ptr(), seen[2].data_ptr());
}

TEST(RebatchTest, CutsWhatAMapAfterBatchMadeOfWholeBatches) {
  const auto sum = [](Batch batch) {
    batch.x = batch.x.tensor() + 100 * batch.rows();
    return batch;
  };
  EXPECT_EQ(batches_of(rebatch(numbers(5).batch(4).map(sum).prefetch(1), {2})),
            (Batches{{400, 401}, {402, 403}, {104}}));
}

TEST(RebatchTest, TellsTheLargestBatchAndItsLengthOnlyWhereThatIsCertain) {
  EXPECT_EQ(rebatch(numbers(9).batch(4), {1, 3, 0}).batch_size(), 3);
  EXPECT_EQ(rebatch(numbers(9).batch(4), {2}).cardinality(), Dataset::kUnknown);
  EXPECT_EQ(rebatch(numbers(9).batch(4).repeat(), {2}).cardinality(), Dataset::kInfinite);
  EXPECT_EQ(rebatch(numbers(0).batch(4), {2}).cardinality(), 0);
}

TEST(RebatchTest, SeeksWithoutMakingWhatComesBefore) {
  std::atomic<int> made{0};
  const auto source = Dataset::from_function(1000, [&](std::int64_t index) {
    ++made;
    return Batch{at::Tensor(torch::tensor(index))};
  });
  // 16 rows in 3 batches.
  for (const auto& [dataset, position] : {std::pair{source.shuffle(1000).batch(16).prefetch(1), 170},
                                          {source.batch(16).repeat(), 3000},
                                          {source.take(990).batch(16).skip(1).take(40).repeat(20), 2000}}) {
    made = 0;
    auto batches = rebatch(dataset, batch_sizes_for_worker(16, 3, 1, 1)).iterate();
    batches.seek({0, position});
    batches.next();
    EXPECT_LE(made, 48) << "the old batch that the position is in, the next, and what a prefetch makes";
  }
}

TEST(RebatchTest, CountsTheRowsOfAMapAfterBatchThatLeavesSomeOut) {
  const auto halve = [](Batch batch) { return batch.slice(0, batch.rows() / 2); };
  for (const int threads : {0, 2}) {
    const auto dataset = rebatch(numbers(20).batch(4).map(halve, {.parallelism = threads}).prefetch(1), {3});
    EXPECT_EQ(batches_of(dataset), (Batches{{0, 1, 4}, {5, 8, 9}, {12, 13, 16}, {17}}));
    auto batches = dataset.iterate();
    batches.seek({0, 2});
    EXPECT_EQ(rest_of(batches), (Batches{{12, 13, 16}, {17}}));
  }
}

TEST(RebatchTest, SaysWhichRowsDoNotFitTogether) {
  const auto widen = [](Batch batch) {
    batch.x = batch.x.tensor().unsqueeze(1).expand({-1, batch.rows()});
    return batch;
  };
  auto batches = rebatch(numbers(5).batch(3).map(widen), {4}).iterate();
  EXPECT_EQ(message_of<InvalidArgument>([&] { batches.next(); }),
            "batch: x of example 3 is Long [2], but x of example 0, the first of its batch, is Long [3]");
}

TEST(RebatchTest, RefusesSizesThatGiveNoBatches) {
  const auto refused = [](std::vector<std::int64_t> sizes) {
    return message_of<InvalidArgument>([&] { rebatch(numbers(4).batch(2), sizes); });
  };
  EXPECT_EQ(refused({}), "rebatch: sizes []: expected 0 or more rows each, and 1 or more in all");
  EXPECT_EQ(refused({0, 0}), "rebatch: sizes [0, 0]: expected 0 or more rows each, and 1 or more in all");
  EXPECT_EQ(refused({2, -1}), "rebatch: sizes [2, -1]: expected 0 or more rows each, and 1 or more in all");
  EXPECT_EQ(message_of<InvalidArgument>([] { rebatch(numbers(4), {2}); }),
            "rebatch: the dataset has no batches: call .batch(n) on it first");
}

}  // namespace
}  // namespace tandem::internal
