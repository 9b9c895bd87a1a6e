#include "tandem/losses.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "support/oracle.h"
#include "support/tensors.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using testing_support::near;
using testing_support::read_oracle;

at::Tensor labels_of(const nlohmann::json& example) {
  return torch::tensor(example["labels"].get<std::vector<std::int64_t>>());
}

TEST(SparseCategoricalCrossentropy, AnswersAsKeras) {
  const Loss loss = losses::sparse_categorical_crossentropy();
  for (const auto& example : read_oracle("losses_metrics")) {
    const at::Tensor logits = testing_support::rows(example["logits"]);
    const at::Tensor expected = testing_support::row(example["sparse_categorical_crossentropy"]);
    EXPECT_TRUE(near(loss.per_example(labels_of(example), logits), expected));
  }
}

TEST(SparseCategoricalCrossentropy, TakesProbabilities) {
  const Loss loss = losses::sparse_categorical_crossentropy({.from_logits = false});
  const at::Tensor probabilities = torch::tensor({{0.7, 0.2, 0.1}, {0.25, 0.5, 0.25}});
  EXPECT_TRUE(near(loss.per_example(torch::tensor({0, 2}), probabilities),
                   torch::tensor({-std::log(0.7), -std::log(0.25)})));
}

TEST(SparseCategoricalCrossentropy, IsFiniteForACertaintyThatIsWrong) {
  const Loss loss = losses::sparse_categorical_crossentropy({.from_logits = false});
  const at::Tensor value = loss.per_example(torch::tensor({1}), torch::tensor({{1.0, 0.0}}, torch::kDouble));
  EXPECT_NEAR(value.item<double>(), -std::log(1e-7), 1e-6);
}

TEST(SparseCategoricalCrossentropy, TakesClassNumbersAsAColumnAndAsFloats) {
  const Loss loss = losses::sparse_categorical_crossentropy();
  const at::Tensor logits = torch::tensor({{1.0, 2.0, 3.0}, {0.5, 0.0, -0.5}});
  const at::Tensor expected = loss.per_example(torch::tensor({2, 1}), logits);
  EXPECT_TRUE(near(loss.per_example(torch::tensor({{2.0F}, {1.0F}}), logits), expected, 0));
}

TEST(SparseCategoricalCrossentropy, NamesALabelThatIsNoClass) {
  const Loss loss = losses::sparse_categorical_crossentropy();
  // -100 is what libtorch would silently leave out.
  for (const std::int64_t label : {3, -1, -100}) {
    try {
      loss.per_example(torch::tensor({std::int64_t{0}, label}), torch::zeros({2, 3}));
      ADD_FAILURE() << label;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()), "class number " + std::to_string(label) +
                                               " in y_true is out of range: y_pred has 3 classes (0 to 2)");
    }
  }
}

TEST(SparseCategoricalCrossentropy, RefusesShapesThatCannotFit) {
  const Loss loss = losses::sparse_categorical_crossentropy();
  const at::Tensor logits = torch::zeros({2, 3});
  EXPECT_THROW(loss.per_example(torch::zeros({3}), logits), InvalidArgument);
  EXPECT_THROW(loss.per_example(torch::zeros({2, 3}), logits), InvalidArgument);
  EXPECT_THROW(loss.per_example(torch::zeros({2}), torch::zeros({2})), InvalidArgument);
  EXPECT_THROW(loss.per_example(torch::zeros({2}), torch::zeros({2, 3, 4})), InvalidArgument);
  EXPECT_THROW(loss.per_example({}, logits), InvalidArgument);
}

TEST(CategoricalCrossentropy, IsTheSparseOneForOneHotRows) {
  for (const bool from_logits : {true, false}) {
    const Loss sparse = losses::sparse_categorical_crossentropy({.from_logits = from_logits});
    const Loss dense = losses::categorical_crossentropy({.from_logits = from_logits});
    for (const auto& example : read_oracle("losses_metrics")) {
      at::Tensor y_pred = testing_support::rows(example["logits"]);
      if (!from_logits) y_pred = y_pred.softmax(1);
      const at::Tensor labels = labels_of(example);
      const at::Tensor one_hot = torch::one_hot(labels, y_pred.size(1));
      EXPECT_TRUE(near(dense.per_example(one_hot, y_pred), sparse.per_example(labels, y_pred)));
    }
  }
}

TEST(CategoricalCrossentropy, WeighsEveryClassByItsProbability) {
  const at::Tensor y_true = torch::tensor({{0.5, 0.5}});
  const at::Tensor value =
      losses::categorical_crossentropy().per_example(y_true, torch::tensor({{0.0, std::log(3.0)}}));
  EXPECT_NEAR(value.item<double>(), -(std::log(0.25) + std::log(0.75)) / 2, 1e-6);
}

TEST(CategoricalCrossentropy, MakesProbabilitiesSumToOneFirst) {
  const Loss loss = losses::categorical_crossentropy({.from_logits = false});
  const at::Tensor value = loss.per_example(torch::tensor({{0, 1}}), torch::tensor({{1.0, 3.0}}));
  EXPECT_NEAR(value.item<double>(), -std::log(0.75), 1e-6);
}

TEST(BinaryCrossentropy, IsTheMeanOverARow) {
  const at::Tensor logits = torch::tensor({{0.0, std::log(3.0)}, {std::log(3.0), 0.0}}, torch::kDouble);
  const at::Tensor y_true = torch::tensor({{1, 1}, {0, 0}});
  const at::Tensor expected =
      torch::tensor({(std::log(2) - std::log(0.75)) / 2, (-std::log(0.25) + std::log(2)) / 2});
  EXPECT_TRUE(near(losses::binary_crossentropy().per_example(y_true, logits), expected));
  EXPECT_TRUE(near(losses::binary_crossentropy({.from_logits = false}).per_example(y_true, logits.sigmoid()),
                   expected));
}

TEST(BinaryCrossentropy, IsFiniteForACertaintyThatIsWrong) {
  const Loss loss = losses::binary_crossentropy({.from_logits = false});
  const at::Tensor value =
      loss.per_example(torch::tensor({{1}, {0}}), torch::tensor({{0.0}, {1.0}}, torch::kDouble));
  EXPECT_TRUE(near(value, torch::full({2}, -std::log(1e-7), torch::kDouble)));
}

TEST(BinaryCrossentropy, LetsANanThrough) {
  const Loss loss = losses::binary_crossentropy({.from_logits = false});
  const at::Tensor nan = torch::full({1, 1}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(loss.per_example(torch::ones({1, 1}), nan).item<float>()));
}

TEST(MeanSquaredError, AnswersAsKeras) {
  for (const auto& example : read_oracle("losses_metrics")) {
    const at::Tensor y_pred = testing_support::rows(example["logits"]);
    const at::Tensor one_hot = torch::one_hot(labels_of(example), y_pred.size(1));
    const at::Tensor expected = testing_support::row(example["mean_squared_error"]);
    EXPECT_TRUE(near(losses::mean_squared_error().per_example(one_hot, y_pred), expected));
  }
}

TEST(MeanSquaredError, IsOneNumberPerRowWhateverTheDimensions) {
  const at::Tensor y_pred = torch::arange(12, torch::kFloat).view({2, 3, 2});
  EXPECT_TRUE(near(losses::mean_squared_error().per_example(torch::zeros({2, 3, 2}), y_pred),
                   torch::tensor({55.0 / 6, 451.0 / 6})));
}

// Broadcast, [rows] against [rows, 1] would be rows x rows differences.
TEST(MeanSquaredError, ComparesAColumnWithARowOfNumbers) {
  const at::Tensor y_pred = torch::tensor({{1.0}, {2.0}, {3.0}});
  const at::Tensor expected = torch::tensor({0.0, 0.0, 4.0});
  EXPECT_TRUE(near(losses::mean_squared_error().per_example(torch::tensor({1, 2, 5}), y_pred), expected));
  EXPECT_TRUE(near(
      losses::mean_squared_error().per_example(torch::tensor({{1}, {2}, {5}}), y_pred.squeeze(1)), expected));
}

TEST(MeanSquaredError, RefusesShapesThatWouldBroadcast) {
  for (const Loss& loss : {losses::mean_squared_error(), losses::mean_absolute_error(),
                           losses::binary_crossentropy(), losses::categorical_crossentropy()}) {
    EXPECT_THROW(loss.per_example(torch::zeros({2, 1}), torch::zeros({2, 3})), InvalidArgument) << loss.name;
    EXPECT_THROW(loss.per_example(torch::zeros({1, 3}), torch::zeros({2, 3})), InvalidArgument) << loss.name;
  }
  EXPECT_THROW(losses::mean_squared_error().per_example(torch::zeros({}), torch::zeros({})), InvalidArgument);
}

TEST(MeanAbsoluteError, IsTheMeanOverARow) {
  const at::Tensor value = losses::mean_absolute_error().per_example(
      torch::zeros({2, 2}), torch::tensor({{1.0, -2.0}, {0.0, 0.5}}));
  EXPECT_TRUE(near(value, torch::tensor({1.5, 0.25})));
}

TEST(Losses, KeepTheDtypeOfThePrediction) {
  const at::Tensor y_pred = torch::full({2, 3}, 0.3, torch::kDouble);
  for (const bool from_logits : {true, false}) {
    EXPECT_EQ(
        losses::sparse_categorical_crossentropy({from_logits}).per_example(torch::zeros({2}), y_pred).dtype(),
        torch::kDouble);
    EXPECT_EQ(
        losses::categorical_crossentropy({from_logits}).per_example(torch::zeros({2, 3}), y_pred).dtype(),
        torch::kDouble);
    EXPECT_EQ(losses::binary_crossentropy({from_logits}).per_example(torch::zeros({2, 3}), y_pred).dtype(),
              torch::kDouble);
  }
  EXPECT_EQ(losses::mean_squared_error().per_example(torch::zeros({2, 3}), y_pred).dtype(), torch::kDouble);
}

TEST(Losses, TakeAPieceWithoutRows) {
  EXPECT_EQ(
      losses::sparse_categorical_crossentropy().per_example(torch::zeros({0}), torch::zeros({0, 3})).numel(),
      0);
  EXPECT_EQ(losses::mean_squared_error().per_example(torch::zeros({0, 3}), torch::zeros({0, 3})).numel(), 0);
}

TEST(Losses, PassTheGradientBack) {
  const at::Tensor logits = torch::tensor({{0.0, std::log(3.0)}}, torch::requires_grad());
  losses::sparse_categorical_crossentropy().per_example(torch::tensor({0}), logits).sum().backward();
  EXPECT_TRUE(near(logits.grad(), torch::tensor({{-0.75, 0.75}})));
}

TEST(ComputeAverageLoss, DividesByTheRowsOfTheWholeStep) {
  const at::Tensor losses = torch::tensor({1.0, 2.0, 3.0});
  EXPECT_DOUBLE_EQ(compute_average_loss(losses, 4).item<double>(), 1.5);
  EXPECT_DOUBLE_EQ(compute_average_loss(losses, 4, torch::tensor({1.0, 0.0, 2.0})).item<double>(), 1.75);
}

TEST(ComputeAverageLoss, RefusesWhatIsNotOneLossPerRow) {
  const at::Tensor losses = torch::ones({3});
  EXPECT_THROW(compute_average_loss(losses, 0), InvalidArgument);
  EXPECT_THROW(compute_average_loss(losses, 3, torch::ones({2})), InvalidArgument);
  EXPECT_THROW(compute_average_loss(torch::ones({3, 2}), 3), InvalidArgument);
}

}  // namespace
}  // namespace tandem
