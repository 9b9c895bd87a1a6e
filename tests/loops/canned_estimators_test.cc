#include "tandem/canned_estimators.h"

#include <gtest/gtest.h>

#include <fstream>

#include "loops/support.h"
#include "strategy/tasks_in_one_process.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::message_of;
using testing_support::mirrored;
using testing_support::TempFolder;

// y = 2 a - 3 b + 1, and one more where the colour is red.
Batch generated(std::int64_t rows, std::int64_t seed) {
  torch::manual_seed(seed);
  const at::Tensor a = torch::rand({rows}), b = torch::rand({rows});
  const at::Tensor red = torch::randint(2, {rows});
  std::vector<std::string> colours;
  for (std::int64_t i = 0; i < rows; ++i) colours.emplace_back(red[i].item<int>() ? "red" : "blue");
  return {.x = Tensors::Map{{"a", a}, {"b", b}, {"colour", data::string_tensor(colours)}},
          .y = (2 * a - 3 * b + 1 + red).unsqueeze(1)};
}

std::vector<FeatureColumn> columns() {
  return {numeric_column("a"), numeric_column("b"),
          categorical_column_with_vocabulary_list("colour", std::vector<std::string>{"red", "blue"})};
}

TEST(LinearRegressorTest, RecoversTheGeneratorsCoefficients) {
  const Batch all = generated(512, 3);
  const InputFn train = [&] { return Dataset::from_tensors(all.x, all.y).shuffle(512).batch(32).repeat(); };
  const InputFn test = [&] { return Dataset::from_tensors(all.x, all.y).batch(100); };
  for (const OptimizerChoice& optimizer :
       {OptimizerChoice("Ftrl"), OptimizerChoice("SGD"),
        OptimizerChoice([] { return optimizers::Adam({.learning_rate = 0.02}); })}) {
    const TempFolder folder;
    LinearRegressor regressor(
        columns(), {.model_dir = folder.path(), .config = {.tf_random_seed = 2}, .optimizer = optimizer});
    regressor.train(train, {.steps = 1200});
    EXPECT_NEAR(regressor.get_variable_value("a_weights").item<double>(), 2, 0.03);
    EXPECT_NEAR(regressor.get_variable_value("b_weights").item<double>(), -3, 0.03);
    const at::Tensor colours = regressor.get_variable_value("colour_weights");
    EXPECT_NEAR((colours[0] - colours[1]).item<double>(), 1, 0.03);
    const Logs result = regressor.evaluate(test);
    EXPECT_LT(result.at("average_loss"), 1e-3);
    EXPECT_NEAR(result.at("loss"), result.at("average_loss"), 1e-9);
    EXPECT_NEAR(result.at("label/mean"), all.y.tensor().mean().item<double>(), 1e-5);
    EXPECT_NEAR(result.at("prediction/mean"), result.at("label/mean"), 1e-2);
    EXPECT_EQ(regressor.predict(test).at("predictions").size(0), 512);
  }
}

TEST(LinearRegressorTest, NamesAFeatureThatTheInputDoesNotHave) {
  const TempFolder folder;
  LinearRegressor regressor({numeric_column("weight")}, {.model_dir = folder.path()});
  const InputFn input = [] {
    return Dataset::from_tensors(Tensors::Map{{"height", torch::rand({8})}}, torch::rand({8, 1})).batch(4);
  };
  EXPECT_EQ(message_of<InvalidArgument>([&] { regressor.train(input); }),
            "feature \"weight\" is missing from the input (did you mean \"height\"?): it has height");
  EXPECT_THROW(LinearRegressor({numeric_column("x")}, {.optimizer = "Sgd"}), InvalidArgument);
}

TEST(ClassifiersTest, LearnWhatALineSeparatesAndWhatItDoesNot) {
  torch::manual_seed(4);
  const at::Tensor x = torch::rand({600, 2}) * 2 - 1;
  const at::Tensor both = (x.select(1, 0) > 0).logical_xor(x.select(1, 1) > 0).to(torch::kLong);
  const at::Tensor quadrant =
      (x.select(1, 0) > 0).to(torch::kLong) * 2 + (x.select(1, 1) > 0).to(torch::kLong);
  const auto accuracy = [&](Estimator& estimator, const at::Tensor& y, std::int64_t steps) {
    const Tensors features = Tensors::Map{{"x", x}};
    estimator.train([=] { return Dataset::from_tensors(features, y).shuffle(600).batch(30).repeat(); },
                    {.steps = steps});
    const InputFn once = [=] { return Dataset::from_tensors(features, y).batch(50); };
    const Logs result = estimator.evaluate(once);
    const at::Tensor ids = estimator.predict(once).at("class_ids").flatten();
    EXPECT_NEAR((ids == y).to(torch::kDouble).mean().item<double>(), result.at("accuracy"), 1e-6);
    return result.at("accuracy");
  };
  const std::vector<FeatureColumn> columns{numeric_column("x", {.shape = {2}})};
  const RunConfig config{.tf_random_seed = 1};
  const TempFolder a, b, c;
  LinearClassifier two(columns, {.model_dir = a.path(), .config = config});
  EXPECT_GT(accuracy(two, (x.select(1, 0) > 0).to(torch::kLong), 300), 0.97);
  LinearClassifier four(columns, {.model_dir = b.path(), .config = config, .n_classes = 4});
  EXPECT_GT(accuracy(four, quadrant, 600), 0.95);
  DNNClassifier deep(columns,
                     {.hidden_units = {16, 8}, .model_dir = c.path(), .config = config, .dropout = 0.05});
  EXPECT_GT(accuracy(deep, both, 800), 0.93);  // no line does better than half
}

// Two classes that overlap, and weights from 0 to 3.
struct Overlapping {
  Overlapping() {
    torch::manual_seed(9);
    y = torch::randint(2, {90});
    x = torch::randn({90}) + y;
    weight = torch::randint(4, {90}).to(torch::kFloat);
  }
  InputFn input(std::int64_t batch) const {
    const Tensors features = Tensors::Map{{"x", x}, {"w", weight}};
    return [=, y = y](const InputContext& context) {
      return Dataset::from_tensors(features, y)
          .shard(context.num_input_pipelines, context.input_pipeline_id)
          .batch(batch);
    };
  }
  at::Tensor x, y, weight;
};

TEST(ClassifiersTest, TellTensorFlowsMetricsOfTwoClasses) {
  const TempFolder folder;
  const Overlapping data;
  const std::vector<FeatureColumn> columns{numeric_column("x")};
  const auto classifier = [&](std::optional<Strategy> strategy, WeightColumn weight_column = "") {
    return LinearClassifier(columns, {.model_dir = folder.path(),
                                      .config = {.tf_random_seed = 1, .eval_distribute = strategy},
                                      .weight_column = std::move(weight_column)});
  };
  LinearClassifier plain = classifier({});
  plain.train(data.input(10), {.steps = 9});
  const Logs result = plain.evaluate(data.input(13));
  std::vector<std::string> names;
  for (const auto& [name, value] : result) names.push_back(name);
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"accuracy", "accuracy_baseline", "auc", "auc_precision_recall",
                                             "average_loss", "global_step", "label/mean", "loss", "precision",
                                             "prediction/mean", "recall"}));

  const at::Tensor p = plain.predict(data.input(90)).at("logistic").flatten().to(torch::kDouble);
  const at::Tensor y = data.y.to(torch::kDouble), taken = (p > 0.5).to(torch::kDouble);
  const auto near = [&](const char* name, const at::Tensor& expected, double tolerance = 1e-6) {
    EXPECT_NEAR(result.at(name), expected.item<double>(), tolerance) << name;
  };
  near("accuracy", (taken == y).to(torch::kDouble).mean());
  near("accuracy_baseline", torch::max(y.mean(), 1 - y.mean()));
  near("precision", (taken * y).sum() / taken.sum());
  near("recall", (taken * y).sum() / y.sum());
  near("label/mean", y.mean());
  near("prediction/mean", p.mean());
  near("average_loss", -(y * p.log() + (1 - y) * (1 - p).log()).mean());
  near("loss", torch::tensor(result.at("average_loss"), torch::kDouble));
  // How often a 1 is above a 0: 200 thresholds come close.
  near("auc", (p.masked_select(y == 1).unsqueeze(1) > p.masked_select(y == 0)).to(torch::kDouble).mean(),
       5e-3);
  EXPECT_GT(result.at("auc_precision_recall"), 0.7);

  // A row that weighs n counts as n rows; but the loss is TensorFlow's: the weighted sum, divided by the
  // rows.
  const at::Tensor copies = torch::arange(90).repeat_interleave(data.weight.to(torch::kLong));
  Overlapping repeated;
  repeated.x = data.x.index_select(0, copies);
  repeated.y = data.y.index_select(0, copies);
  repeated.weight = torch::ones({copies.size(0)});
  const Logs expected = plain.evaluate(repeated.input(17));
  const auto same = [&](const Logs& weighted, double tolerance) {
    EXPECT_EQ(weighted.size(), expected.size());
    for (const auto& [name, value] : expected) {
      const double factor = name == "loss" ? static_cast<double>(copies.size(0)) / 90 : 1;
      EXPECT_NEAR(weighted.at(name), factor * value, tolerance) << name;
    }
  };
  same(classifier({}, "w").evaluate(data.input(13)), 1e-6);
  same(classifier(mirrored(2), numeric_column("w")).evaluate(data.input(13)), 1e-6);
  testing_support::run_tasks(2, 2, {}, [&](Strategy& strategy, int) {
    const EstimatorEvaluateOptions options{.hooks = {LoggingTensorHook({.every_n_iter = 2})}};
    same(classifier(strategy, "w").evaluate(data.input(7), options), 1e-6);
  });
}

TEST(CannedEstimatorsTest, LearnNothingFromRowsThatWeighNothing) {
  const TempFolder folder;
  const at::Tensor x = torch::linspace(-1, 1, 64), good = torch::arange(64) % 2;
  const Tensors features = Tensors::Map{{"x", x}, {"w", good * 2}};
  const at::Tensor y = torch::where(good == 1, 3 * x + 2, torch::full_like(x, 1000));
  const auto options = [&](WeightColumn weight_column) {
    return LinearEstimatorOptions{.model_dir = folder.path(),
                                  .config = {.tf_random_seed = 2, .train_distribute = mirrored(2)},
                                  .weight_column = std::move(weight_column),
                                  .optimizer = "SGD"};
  };
  LinearRegressor regressor({numeric_column("x")}, options("w"));
  regressor.train([=] { return Dataset::from_tensors(features, y).shuffle(64).batch(8).repeat(); },
                  {.steps = 200});
  EXPECT_NEAR(regressor.get_variable_value("x_weights").item<double>(), 3, 1e-2);
  EXPECT_NEAR(regressor.get_variable_value("bias").item<double>(), 2, 1e-2);

  LinearRegressor misnamed({numeric_column("x")}, options("ww"));
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { misnamed.evaluate([=] { return Dataset::from_tensors(features, y).batch(8); }); }),
            "feature \"ww\" is missing from the input: it has w, x");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              LinearRegressor({numeric_column("x")}, options(bucketized_column(numeric_column("w"), {1})));
            }),
            "weight_column \"w_bucketized\": expected a numeric_column of one number in a row");
}

TEST(ClassifiersTest, TakeLabelsThatAreTexts) {
  const TempFolder folder;
  const auto write = [&](const char* name, const char* last_label) {
    std::ofstream file(folder.file(name));
    file << "x,kind\n";
    for (int i = 0; i < 90; ++i) {
      const int kind = i * 7 % 3;
      file << kind + 0.002 * i << ","
           << (i == 89     ? last_label
               : kind == 0 ? "cat"
               : kind == 1 ? "dog"
                           : "owl")
           << "\n";
    }
    return folder.file(name);
  };
  const auto input = [](const std::string& path) {
    return [=] { return data::csv(path, {.label_name = "kind"}).batch(10); };
  };
  const std::vector<std::string> vocabulary{"dog", "owl", "cat"};
  const auto options = [&](std::int64_t n_classes, std::vector<std::string> words) {
    return DNNEstimatorOptions{.hidden_units = {8},
                               .model_dir = folder.file("model"),
                               .config = {.tf_random_seed = 1},
                               .optimizer = [] { return optimizers::Adam({.learning_rate = 0.05}); },
                               .n_classes = n_classes,
                               .label_vocabulary = std::move(words)};
  };
  const std::vector<FeatureColumn> columns{numeric_column("x")};
  const std::string known = write("known.csv", "dog");
  DNNClassifier classifier(columns, options(3, vocabulary));
  classifier.train([&] { return input(known)().repeat(); }, {.steps = 200});
  EXPECT_GT(classifier.evaluate(input(known)).at("accuracy"), 0.95);
  // The number of a class is its place in the vocabulary; the first record is a cat.
  EXPECT_EQ(classifier.predict(input(known)).at("class_ids")[0].item<std::int64_t>(), 2);

  const std::string unknown = write("unknown.csv", "dgo");
  EXPECT_EQ(message_of<InvalidArgument>([&] { classifier.evaluate(input(unknown)); }),
            "label \"dgo\" is not in label_vocabulary (did you mean \"dog\"?): it has dog, owl, cat");
  EXPECT_EQ(
      message_of<InvalidArgument>([&] {
        classifier.evaluate([] {
          return Dataset::from_tensors(Tensors::Map{{"x", torch::rand({4})}}, torch::full({4}, 1)).batch(4);
        });
      }),
      "label 1 is not in label_vocabulary (texts come from data::csv or data::string_tensor): it has dog, "
      "owl, cat");
  const std::string no_vocabulary =
      message_of<InvalidArgument>([&] { DNNClassifier(columns, options(3, {})).evaluate(input(known)); });
  EXPECT_NE(
      no_vocabulary.find("is out of range: expected 0 to 2, for n_classes = 3 (texts need label_vocabulary)"),
      std::string::npos)
      << no_vocabulary;
  EXPECT_EQ(message_of<InvalidArgument>([&] { DNNClassifier(columns, options(2, vocabulary)); }),
            "label_vocabulary has 3 texts, and n_classes is 2: expected as many");
}

TEST(DNNRegressorTest, LearnsACurve) {
  const TempFolder folder;
  const at::Tensor x = torch::linspace(-1, 1, 200);
  DNNRegressor regressor(
      {numeric_column("x")},
      {.hidden_units = {16}, .model_dir = folder.path(), .config = {.tf_random_seed = 3}, .optimizer = [] {
         return optimizers::Adam({.learning_rate = 0.02});
       }});
  const Tensors features = Tensors::Map{{"x", x}};
  const at::Tensor y = (x * x).unsqueeze(1);
  regressor.train([=] { return Dataset::from_tensors(features, y).shuffle(200).batch(20).repeat(); },
                  {.steps = 600});
  EXPECT_LT(regressor.evaluate([=] { return Dataset::from_tensors(features, y).batch(50); }).at("loss"),
            2e-3);
}

}  // namespace
}  // namespace tandem
