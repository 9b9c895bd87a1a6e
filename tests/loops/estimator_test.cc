#include "tandem/estimator.h"

#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>
#include <fstream>

#include "loops/support.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace tandem {
namespace {

using testing_support::line_data;
using testing_support::message_of;
using testing_support::mirrored;
using testing_support::near;
using testing_support::TempFolder;

EstimatorSpec line_model_fn(const Tensors& features, const Tensors&, ModeKeys mode, const HParams& params,
                            const RunConfig&) {
  const std::int64_t width = features.tensor().size(1);
  EstimatorSpec spec{.module = [width] { return torch::nn::Linear(width, 1); },
                     .loss = losses::mean_squared_error(),
                     .eval_metric_ops = {metrics::mean_absolute_error()}};
  if (mode == ModeKeys::kTrain) {
    spec.optimizer = optimizers::SGD({.learning_rate = std::get<double>(params.at("learning_rate"))});
  }
  return spec;
}

const HParams kParams{{"learning_rate", 0.2}};

InputFn line_input(std::int64_t batch = 8) {
  return [batch] { return line_data(64).shuffle(64).batch(batch).repeat(); };
}
InputFn line_once() {
  return [] { return line_data(64).batch(8); };
}

TEST(RunConfigTest, HasTensorFlowsDefaults) {
  const RunConfig config = RunConfig{.cluster = ResolvedCluster{}}.resolved();
  EXPECT_EQ(config.save_checkpoints_secs, 600);
  EXPECT_EQ(config.save_checkpoints_steps, std::nullopt);
  EXPECT_EQ(config.save_summary_steps, 100);
  EXPECT_EQ(config.keep_checkpoint_max, 5);
  EXPECT_EQ(config.log_step_count_steps, 100);
  EXPECT_EQ(config.task_type(), "worker");
  EXPECT_EQ(config.task_id(), 0);
  EXPECT_TRUE(config.is_chief());
  EXPECT_EQ(config.master(), "");
  EXPECT_EQ(config.num_ps_replicas(), 0);
  EXPECT_EQ(config.num_worker_replicas(), 1);
  EXPECT_THROW((RunConfig{.save_checkpoints_steps = 1, .save_checkpoints_secs = 1}.resolved()),
               InvalidArgument);
}

TEST(RunConfigTest, ReadsTheClusterAsTensorFlowDoes) {
  const auto config = [](const std::string& type, int index) {
    return RunConfig{
        .cluster = ResolvedCluster{
            .cluster = ClusterSpec({{"chief", {"a:1"}}, {"ps", {"b:1", "b:2"}}, {"worker", {"c:1", "c:2"}}}),
            .task = TaskId{type, index}}};
  };
  EXPECT_EQ(config("worker", 1).num_worker_replicas(), 3);
  EXPECT_EQ(config("worker", 1).num_ps_replicas(), 2);
  EXPECT_FALSE(config("worker", 0).is_chief());
  EXPECT_EQ(config("chief", 0).global_id_in_cluster(), 0);
  EXPECT_EQ(config("worker", 1).global_id_in_cluster(), 2);
  EXPECT_EQ(config("ps", 1).global_id_in_cluster(), 4);
  EXPECT_EQ(config("evaluator", 0).global_id_in_cluster(), std::nullopt);
  RunConfig two_chiefs = config("chief", 0);
  two_chiefs.cluster->cluster = ClusterSpec({{"chief", {"a:1", "a:2"}}});
  EXPECT_THROW(two_chiefs.resolved(), InvalidArgument);
}

TEST(EstimatorTest, TrainsEvaluatesPredictsAndExports) {
  const TempFolder folder;
  Estimator estimator(line_model_fn, {.model_dir = folder.path(),
                                      .config = {.tf_random_seed = 1, .train_distribute = mirrored(2)},
                                      .params = kParams});
  EXPECT_NE(message_of<NotFound>([&] { estimator.evaluate(line_once()); }).find("train() first"),
            std::string::npos);
  estimator.train(line_input(4), {.steps = 100});
  const Logs result = estimator.evaluate(line_once());
  EXPECT_LT(result.at("loss"), 1e-4);
  EXPECT_LT(result.at("mean_absolute_error"), 1e-2);
  EXPECT_EQ(result.at("global_step"), 100);
  EXPECT_TRUE(std::filesystem::exists(folder / "eval"));
  EXPECT_EQ(estimator.get_variable_names(), (std::vector<std::string>{"bias", "weight"}));
  EXPECT_NEAR(estimator.get_variable_value("weight").item<double>(), 3, 1e-2);
  EXPECT_NE(
      message_of<NotFound>([&] { estimator.get_variable_value("wieght"); }).find("did you mean \"weight\""),
      std::string::npos);

  const at::Tensor x = torch::linspace(-1, 1, 64).unsqueeze(1);
  EXPECT_TRUE(near(estimator.predict(line_once()).at("output"), 3 * x + 2, 2e-2));
  const std::string exported = estimator.export_model(folder.file("export"), x.slice(0, 0, 1));
  torch::jit::Module script = torch::jit::load(exported + "/model.pt");
  EXPECT_TRUE(near(script.forward({x}).toTensor(), 3 * x + 2, 2e-2));
}

TEST(EstimatorTest, StepsAddAndMaxStepsIsAbsolute) {
  const TempFolder folder;
  const auto step = [&](EstimatorTrainOptions options) {
    Estimator estimator(line_model_fn, {.model_dir = folder.path(), .params = kParams});
    estimator.train(line_input(), std::move(options));
    return estimator.evaluate(line_once(), {.steps = 1}).at("global_step");
  };
  EXPECT_EQ(step({.steps = 3}), 3);
  EXPECT_EQ(step({.steps = 3}), 6);
  EXPECT_EQ(step({.max_steps = 8}), 8);
  EXPECT_EQ(step({.max_steps = 8}), 8);
  EXPECT_EQ(step({.max_steps = 5}), 8);
  EXPECT_THROW(step({.steps = 1, .max_steps = 1}), InvalidArgument);
}

// Throws at a step.
class PowerCut final : public SessionRunHook {
 public:
  explicit PowerCut(std::int64_t step) : step_(step) {}
  void before_run(SessionRunContext& context) override {
    if (context.model().global_step() == step_) throw std::runtime_error("the power is out");
  }

 private:
  std::int64_t step_;
};

TEST(EstimatorTest, AnInterruptedTrainingGoesOnToTheSameEnd) {
  const auto train = [](const TempFolder& folder, std::vector<std::shared_ptr<SessionRunHook>> hooks) {
    Estimator estimator(line_model_fn, {.model_dir = folder.path(),
                                        .config = {.tf_random_seed = 7, .save_checkpoints_steps = 5},
                                        .params = kParams});
    estimator.train(line_input(), {.hooks = std::move(hooks), .max_steps = 23});
    return estimator.get_variable_value("weight");
  };
  const TempFolder whole, cut;
  const at::Tensor expected = train(whole, {});
  EXPECT_THROW(train(cut, {std::make_shared<PowerCut>(13)}), std::runtime_error);
  EXPECT_TRUE(torch::equal(train(cut, {}), expected));
}

TEST(EstimatorTest, TrainsUntilTheDataEndsAndAgainFromItsBeginning) {
  const TempFolder folder;
  Estimator estimator(line_model_fn, {.model_dir = folder.path(), .params = kParams});
  for (int run = 1; run <= 2; ++run) {
    estimator.train(line_once());
    EXPECT_EQ(estimator.evaluate(line_once()).at("global_step"), 8 * run);
  }
}

TEST(EstimatorTest, SaysWhatIsMissing) {
  const TempFolder folder;
  const auto train = [&](const std::function<void(EstimatorSpec&)>& spoil) {
    Estimator(
        [&](auto&&... arguments) {
          EstimatorSpec spec = line_model_fn(arguments...);
          spoil(spec);
          return spec;
        },
        {.model_dir = folder.path(), .params = kParams})
        .train(line_input(), {.steps = 1});
  };
  EXPECT_EQ(message_of<InvalidArgument>([&] { train([](EstimatorSpec& spec) { spec.loss = {}; }); }),
            "model_fn returned no loss: expected EstimatorSpec::loss, to train");
  EXPECT_EQ(message_of<InvalidArgument>([&] { train([](EstimatorSpec& spec) { spec.optimizer.reset(); }); }),
            "model_fn returned no optimizer: expected EstimatorSpec::optimizer, to train");
  train([](EstimatorSpec&) {});
  EXPECT_NE(message_of<InvalidArgument>([&] {
              train([](EstimatorSpec& spec) {
                spec.module = [] { return torch::nn::Sequential(torch::nn::Linear(1, 1)); };
              });
            }).find("is of another model"),
            std::string::npos);
  EXPECT_THROW(Estimator(line_model_fn, {.model_dir = "a", .config = {.model_dir = "b"}}), InvalidArgument);
}

TEST(TrainAndEvaluateTest, EvaluatesCheckpointsAndTheEndAndExports) {
  const TempFolder folder;
  Estimator estimator(
      line_model_fn,
      {.model_dir = folder.path(), .config = {.save_checkpoints_steps = 10}, .params = kParams});
  const Logs result = train_and_evaluate(
      estimator, {.input_fn = line_input(), .max_steps = 60},
      {.input_fn = line_once(),
       .exporters = {LatestExporter("latest", 2), FinalExporter("final"), BestExporter("best")},
       .throttle_secs = 0});
  EXPECT_EQ(result.at("global_step"), 60);
  EXPECT_LT(result.at("loss"), 1e-3);
  const auto exports = [&](const char* name) {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder / "export" / name))
      ++count;
    return count;
  };
  EXPECT_EQ(exports("latest"), 2);
  EXPECT_EQ(exports("final"), 1);
  EXPECT_GE(exports("best"), 2);
}

TEST(EarlyStoppingHooksTest, StopWhenEvaluationsNoLongerGetBetter) {
  const TempFolder folder, evaluations;
  {
    SummaryWriter writer(evaluations.path());
    const double losses[]{0.9, 0.5, 0.6, 0.7};
    for (int i = 0; i < 4; ++i) writer.scalar("loss", 10 * (i + 1), losses[i]);
  }
  Estimator estimator(line_model_fn, {.model_dir = folder.path(), .params = kParams});
  EXPECT_EQ(experimental::read_eval_metrics(evaluations.path()).size(), 4U);
  EXPECT_TRUE(experimental::read_eval_metrics(folder.file("none")).empty());
  const experimental::EarlyStoppingHookOptions looks{.eval_dir = evaluations.path(), .run_every_steps = 1};
  const auto steps = [&](const std::shared_ptr<SessionRunHook>& hook) {
    const auto at = [&] {
      return estimator.latest_checkpoint() ? estimator.evaluate(line_once(), {.steps = 1}).at("global_step")
                                           : 0;
    };
    const double before = at();
    estimator.train(line_input(), {.hooks = {hook}, .steps = 5});
    return at() - before;
  };
  // The best was at step 20, 20 steps before the last.
  EXPECT_EQ(steps(experimental::stop_if_no_decrease_hook(estimator, "loss", 20, looks)), 1);
  EXPECT_EQ(steps(experimental::stop_if_no_decrease_hook(estimator, "loss", 21, looks)), 5);
  EXPECT_EQ(steps(experimental::stop_if_no_increase_hook(estimator, "loss", 30, looks)), 1);
  EXPECT_EQ(steps(experimental::stop_if_lower_hook(estimator, "loss", 0.51, looks)), 1);
  EXPECT_EQ(steps(experimental::stop_if_higher_hook(estimator, "loss", 0.95, looks)), 5);
}

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
  const std::string message = message_of<InvalidArgument>([&] { regressor.train(input); });
  EXPECT_NE(message.find("feature \"weight\" is missing from the input"), std::string::npos) << message;
  EXPECT_NE(message.find("it has height"), std::string::npos) << message;
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
