#include "tandem/batch.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tandem/error.h"

namespace tandem {
namespace {

TEST(BatchTest, SlicesAreViewsOfTheSameMemory) {
  const Batch batch{torch::arange(12).view({6, 2}), torch::arange(6), torch::ones(6)};
  const Batch piece = batch.slice(2, 5);
  EXPECT_EQ(piece.rows(), 3);
  EXPECT_EQ(piece.x.tensor().data_ptr(), batch.x.tensor()[2].data_ptr());
  EXPECT_EQ(piece.y.tensor()[0].item<int64_t>(), 2);
  EXPECT_EQ(piece.sample_weight.size(0), 3);
}

TEST(BatchTest, SlicesEveryTensorOfAMap) {
  const Batch batch{Tensors::Map{{"a", torch::arange(6)}, {"b", torch::arange(12).view({6, 2})}}};
  const Batch piece = batch.slice(4, 6);
  EXPECT_EQ(piece.rows(), 2);
  EXPECT_EQ(piece.x["b"][0][0].item<int64_t>(), 8);
}

TEST(BatchTest, RefusesRowsThatDisagree) {
  EXPECT_THROW((Batch{torch::ones({3, 2}), torch::ones(4)}.rows()), InvalidArgument);
  EXPECT_THROW((Batch{torch::ones({3, 2}), torch::ones(3), torch::ones(2)}.rows()), InvalidArgument);
  EXPECT_THROW(Tensors(Tensors::Map{{"a", torch::ones(3)}, {"b", torch::ones(2)}}).rows(), InvalidArgument);
}

TEST(TensorsTest, NamesWhatIsThereWhenAskedForAnother) {
  const Tensors named(Tensors::Map{{"age", torch::ones(1)}, {"height", torch::ones(1)}});
  try {
    named["weight"];
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "no tensor named \"weight\"; there are: age, height");
  }
  EXPECT_THROW(named.tensor(), InvalidArgument);
}

}  // namespace
}  // namespace tandem
