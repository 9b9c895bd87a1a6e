#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/oracle.h"
#include "support/training.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"

namespace tandem {
namespace {

using testing_support::mirrored;

TEST(Distribute, GivesEachReplicaTheExamplesThatTensorFlowGives) {
  const auto cases = testing_support::read_oracle("mirrored_split");
  ASSERT_GE(cases.size(), 20u);
  for (const auto& one : cases) {
    const auto strategy = mirrored(one["replicas"]);
    const auto examples = torch::arange(one["examples"].get<std::int64_t>());
    auto batches = strategy.distribute(Dataset::from_tensors(examples, examples).batch(one["global_batch"]));
    for (const auto& step : one["steps"]) {
      const DistributedBatch batch = batches.next();
      std::int64_t rows = 0;
      for (std::size_t r = 0; r < step.size(); ++r) {
        const auto expected = step[r].get<std::vector<std::int64_t>>();
        const at::Tensor got = batch[r].x.tensor().contiguous();
        EXPECT_EQ(std::vector<std::int64_t>(got.data_ptr<std::int64_t>(),
                                            got.data_ptr<std::int64_t>() + got.numel()),
                  expected)
            << one.dump();
        rows += static_cast<std::int64_t>(expected.size());
      }
      EXPECT_EQ(batch.global_rows(), rows);
    }
    EXPECT_FALSE(batches.next_as_optional());
    EXPECT_THROW(batches.next(), OutOfRange);
  }
}

TEST(Distribute, CopiesNothing) {
  const auto strategy = mirrored(2);
  const auto batch = strategy.distribute(Dataset::from_tensors(torch::rand({8, 3})).batch(8)).next();
  const at::Tensor first = batch[0].x;
  const at::Tensor second = batch[1].x;
  EXPECT_TRUE(first.is_alias_of(second));
  EXPECT_EQ(second.data_ptr<float>(), first.data_ptr<float>() + first.numel());
}

TEST(Distribute, APieceWithoutRowsKeepsItsShape) {
  const auto strategy = mirrored(3);
  const auto batch = strategy.distribute(Dataset::from_tensors(torch::rand({1, 3, 5})).batch(4)).next();
  EXPECT_EQ(batch[2].x.tensor().sizes(), (at::IntArrayRef{0, 3, 5}));
}

TEST(Distribute, RefusesADatasetOfSingleExamples) {
  EXPECT_THROW(mirrored(2).distribute(Dataset::from_tensors(torch::rand({4, 2}))), InvalidArgument);
}

TEST(Distribute, GoesOnFromASavedPosition) {
  const auto strategy = mirrored(2);
  const auto data = Dataset::from_tensors(torch::arange(40)).shuffle(40).batch(4).prefetch(3);
  const IterateOptions options{.seed = 7, .epoch = 2};
  auto whole = strategy.distribute(data, options);
  for (int i = 0; i < 4; ++i) whole.next();
  const DatasetPosition position = whole.position();
  EXPECT_EQ(position, (DatasetPosition{.epoch = 2, .element = 4}));
  auto resumed = strategy.distribute(data, {.seed = 7});
  resumed.seek(position);
  for (int i = 4; i < 10; ++i) {
    const auto a = whole.next();
    const auto b = resumed.next();
    for (int r = 0; r < 2; ++r) EXPECT_TRUE(a[r].x.tensor().equal(b[r].x.tensor()));
  }
}

}  // namespace
}  // namespace tandem
