#include "tandem/feature_column.h"

#include <gtest/gtest.h>

#include <set>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using data::string_tensor;
using testing_support::message_of;

at::Tensor ids(const FeatureColumn& column, const Tensors::Map& features) {
  return column.ids(features);
}
at::Tensor longs(const std::vector<std::int64_t>& values) {
  return torch::tensor(values, torch::kLong).unsqueeze(1);
}

TEST(NumericColumnTest, GivesTheNumbersNormalisedAndWithDefaults) {
  const auto column = numeric_column(
      "a",
      {.shape = {2}, .default_value = 7, .normalizer_fn = [](const at::Tensor& x) { return (x - 1) / 2; }});
  const at::Tensor a = torch::tensor({{1.0, 3.0}, {std::nan(""), -1.0}});
  EXPECT_TRUE(torch::equal(column.values({{"a", a}}), torch::tensor({{0.0F, 1.0F}, {3.0F, -1.0F}})));
  EXPECT_NE(message_of<InvalidArgument>([&] {
              column.values({{"a", torch::ones({2, 3})}});
            }).find("feature \"a\" has 3 numbers in a row: expected 2"),
            std::string::npos);
}

TEST(NumericColumnTest, NamesTheFeatureThatIsMissing) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              numeric_column("weigth").values({{"weight", torch::ones({2})}});
            }),
            "feature \"weigth\" is missing from the input (did you mean \"weight\"?): it has weight");
}

TEST(BucketizedColumnTest, HasABucketBelowBetweenAndAboveTheBoundaries) {
  // TensorFlow's documentation: boundaries [0, 10, 100], x = [[-5, 10000], [150, 10], [5, 100]].
  const auto column = bucketized_column(numeric_column("x", {.shape = {2}}), {0, 10, 100});
  const at::Tensor x = torch::tensor({{-5., 10000.}, {150., 10.}, {5., 100.}});
  EXPECT_TRUE(torch::equal(ids(column, {{"x", x}}), torch::tensor({{0, 7}, {3, 6}, {1, 7}}, torch::kLong)));
  EXPECT_EQ(column.num_buckets(), 8);
  EXPECT_EQ(column.name(), "x_bucketized");
  EXPECT_THROW(bucketized_column(numeric_column("x"), {1, 1}), InvalidArgument);
  EXPECT_THROW(bucketized_column(column, {1}), InvalidArgument);
}

TEST(VocabularyColumnTest, NumbersTheWordsInTheirOrderAndLeavesOthersOut) {
  const auto colours = categorical_column_with_vocabulary_list("c", std::vector<std::string>{"R", "G", "B"});
  EXPECT_TRUE(torch::equal(ids(colours, {{"c", string_tensor({"B", "R", "", "Y"})}}), longs({2, 0, -1, -1})));
  const auto with_default = categorical_column_with_vocabulary_list(
      "c", std::vector<std::string>{"R", "G", "B"}, {.default_value = 1});
  EXPECT_TRUE(torch::equal(ids(with_default, {{"c", string_tensor({"Y", "", "G"})}}), longs({1, -1, 1})));
  const auto oov =
      categorical_column_with_vocabulary_list("n", std::vector<std::int64_t>{30, 10}, {.num_oov_buckets = 2});
  const at::Tensor found = ids(oov, {{"n", torch::tensor({10, 30, 77, -1}, torch::kLong)}});
  EXPECT_EQ(found[0].item<int>(), 1);
  EXPECT_EQ(found[1].item<int>(), 0);
  EXPECT_GE(found[2].item<int>(), 2);
  EXPECT_EQ(found[3].item<int>(), -1);
  EXPECT_EQ(oov.num_buckets(), 4);
  EXPECT_THROW(categorical_column_with_vocabulary_list("n", std::vector<std::int64_t>{1, 1}),
               InvalidArgument);
}

TEST(HashedColumnTest, SpreadsTextsOverAllBucketsAlways) {
  const auto column = categorical_column_with_hash_bucket("t", 10);
  std::vector<std::string> texts;
  for (int i = 0; i < 1000; ++i) texts.push_back("word " + std::to_string(i));
  const at::Tensor found = ids(column, {{"t", string_tensor(texts)}});
  const at::Tensor counts = torch::bincount(found.flatten(), {}, 10);
  EXPECT_GT(counts.min().item<int>(), 60) << counts;
  EXPECT_LT(counts.max().item<int>(), 140) << counts;
  EXPECT_EQ(ids(column, {{"t", string_tensor({""})}}).item<int>(), -1);
  // The same on every machine and in every version: a model that was saved depends on it.
  EXPECT_TRUE(torch::equal(ids(column, {{"t", string_tensor({"red", "green", "blue"})}}), longs({7, 0, 5})))
      << ids(column, {{"t", string_tensor({"red", "green", "blue"})}});
}

TEST(IdentityColumnTest, RefusesWhatIsOutsideUnlessToldWhereItGoes) {
  const at::Tensor x = torch::tensor({0, 5}, torch::kLong);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              ids(categorical_column_with_identity("x", 5), {{"x", x}});
            }).find("feature \"x\" has the category 5: expected 0 to 4"),
            std::string::npos);
  EXPECT_TRUE(torch::equal(ids(categorical_column_with_identity("x", 5, 2), {{"x", x}}), longs({0, 2})));
}

TEST(CrossedColumnTest, GivesEachCombinationItsOwnCategory) {
  const auto age = bucketized_column(numeric_column("age"), {30});
  const auto column = crossed_column({age, "sex"}, 100000);
  EXPECT_EQ(column.name(), "age_bucketized_X_sex");
  const Tensors::Map people{{"age", torch::tensor({20., 40., 20., 40., 25.})},
                            {"sex", string_tensor({"m", "m", "f", "f", "m"})}};
  const at::Tensor found = ids(column, people).flatten();
  const std::set<std::int64_t> different(found.data_ptr<std::int64_t>(), found.data_ptr<std::int64_t>() + 5);
  EXPECT_EQ(different.size(), 4U);
  EXPECT_EQ(found[0].item<int>(), found[4].item<int>());
  EXPECT_THROW(crossed_column({"sex"}, 10), InvalidArgument);
  EXPECT_THROW(crossed_column({numeric_column("age"), "sex"}, 10), InvalidArgument);
}

TEST(DenseFeaturesTest, PutsColumnsSideBySideByName) {
  const auto colours = categorical_column_with_vocabulary_list("c", std::vector<std::string>{"R", "G"});
  DenseFeatures layer(std::vector<FeatureColumn>{numeric_column("x"), indicator_column(colours),
                                                 embedding_column(colours, 3)});
  ASSERT_EQ(layer->width(), 6);
  const Tensors::Map input{{"x", torch::tensor({5., 6.})}, {"c", string_tensor({"G", ""})}};
  const at::Tensor out = layer->forward(input);
  const at::Tensor table = layer->named_parameters()["c_embedding_table"];
  EXPECT_TRUE(torch::equal(out[0], torch::cat({table[1], torch::tensor({0., 1.}), torch::tensor({5.})})));
  EXPECT_TRUE(torch::equal(out[1], torch::tensor({0., 0., 0., 0., 0., 6.})));
  EXPECT_NE(message_of<InvalidArgument>([&] {
              DenseFeatures(std::vector<FeatureColumn>{colours});
            }).find("wrap it in indicator_column() or embedding_column()"),
            std::string::npos);
  EXPECT_THROW(DenseFeatures(std::vector<FeatureColumn>{numeric_column("x"), numeric_column("x")}),
               InvalidArgument);
}

TEST(LinearModelTest, AddsWeightsOfNumbersAndCategories) {
  const auto colours = categorical_column_with_vocabulary_list("c", std::vector<std::string>{"R", "G"});
  LinearModel model(std::vector<FeatureColumn>{numeric_column("x"), colours});
  auto parameters = model->named_parameters();
  const torch::NoGradGuard no_grad;
  parameters["x_weights"].fill_(10);
  parameters["c_weights"].copy_(torch::tensor({{1.}, {2.}}));
  parameters["bias"].fill_(0.5);
  const at::Tensor out =
      model->forward({{"x", torch::tensor({1., 2., 3.})}, {"c", string_tensor({"R", "G", "none"})}});
  EXPECT_TRUE(torch::equal(out, torch::tensor({{11.5}, {22.5}, {30.5}})));
}

}  // namespace
}  // namespace tandem
