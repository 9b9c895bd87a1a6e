#include "tandem/tensor_board.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "summary/support.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "train/interrupted_fit.h"

namespace tandem {
namespace {

using namespace testing_support;

using Curve = std::vector<std::pair<std::int64_t, float>>;
using Curves = std::map<std::string, Curve>;

// What TensorBoard shows of a run: the start of a session hides what there is from its step on, and of one
// tag what comes again replaces what there was from there on.
Curves shown(const std::string& run) {
  Curves curves;
  for (const auto& event : internal::read_events(run)) {
    const auto hide = [&](Curve& curve) {
      std::erase_if(curve, [&](const auto& point) { return point.first >= event.step; });
    };
    if (event.session_start) {
      for (auto& [tag, curve] : curves) hide(curve);
    }
    for (const auto& value : event.values) {
      const float* scalar = std::get_if<float>(&value.value);
      if (!scalar) continue;
      hide(curves[value.tag]);
      curves[value.tag].emplace_back(event.step, *scalar);
    }
  }
  return curves;
}

std::vector<std::string> tags(const Curves& curves) {
  std::vector<std::string> tags;
  for (const auto& [tag, curve] : curves) tags.push_back(tag);
  return tags;
}

// With the first `step`, and one point every `by`.
Curve points(const std::vector<double>& values, std::int64_t step = 0, std::int64_t by = 1) {
  Curve curve;
  for (const double value : values) {
    curve.emplace_back(step, static_cast<float>(value));
    step += by;
  }
  return curve;
}

FitOptions with(const std::shared_ptr<Callback>& callback, std::int64_t epochs) {
  return {.epochs = epochs, .callbacks = {callback}, .verbose = Verbose::kSilent};
}

class TensorBoardOf : public testing::TestWithParam<int> {
 protected:
  static Strategy strategy() {
    if (GetParam() == 1) return OneDeviceStrategy("/cpu:0", {.threads_per_replica = 1});
    return mirrored(GetParam());
  }
  std::string train() const { return folder_.file("train"); }
  std::string validation() const { return folder_.file("validation"); }

  const TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Replicas, TensorBoardOf, testing::Values(1, 2));

TEST_P(TensorBoardOf, AFitHasTheCurvesOfKeras) {
  Model model = linear(strategy());
  FitOptions options = with(TensorBoard({.log_dir = folder_.path()}), 3);
  options.validation_data = line(6).batch(4);
  options.callbacks.insert(options.callbacks.begin(),
                           LearningRateScheduler([](std::int64_t, double rate) { return rate / 2; }));
  const auto history = model.fit(line(8).batch(4), options).history;
  EXPECT_EQ(shown(train()), (Curves{{"epoch_loss", points(history.at("loss"))},
                                    {"epoch_lr", points({0.05, 0.025, 0.0125})},
                                    {"epoch_learning_rate", points({0.05, 0.025, 0.0125})}}));
  EXPECT_EQ(shown(validation()),
            (Curves{{"epoch_loss", points(history.at("val_loss"))},
                    {"evaluation_loss_vs_iterations", points(history.at("val_loss"), 2, 2)}}));
}

TEST_P(TensorBoardOf, AFitWithoutValidationHasNoRunForIt) {
  Model model = linear(strategy());
  model.fit(line(8).batch(4), with(TensorBoard({.log_dir = folder_.path()}), 1));
  EXPECT_TRUE(std::filesystem::exists(train()));
  EXPECT_FALSE(std::filesystem::exists(validation()));
}

TEST_P(TensorBoardOf, StepsHasAPointForEverySoMany) {
  Model model = linear(strategy());
  std::vector<double> losses;
  FitOptions options = with(TensorBoard({.log_dir = folder_.path(), .update_freq = 2}), 2);
  options.callbacks.push_back(LambdaCallback({.on_train_batch_end = [&](const TrainStep&, const Logs& logs) {
    losses.push_back(logs.at("loss"));
  }}));
  model.fit(line(20).batch(4), options);
  const Curve expected = points({losses[1], losses[3], losses[5], losses[7], losses[9]}, 2, 2);
  EXPECT_EQ(shown(train()).at("batch_loss"), expected);
  EXPECT_EQ(shown(train()).at("epoch_loss"), points({losses[4], losses[9]}));
}

TEST_P(TensorBoardOf, GroupsOfStepsHasAPointWhenSoManyHavePassed) {
  Model model = linear(strategy(), 0.1, /*steps_per_execution=*/3);
  model.fit(line(32).batch(4), with(TensorBoard({.log_dir = folder_.path(), .update_freq = 4}), 2));
  std::vector<std::int64_t> steps;
  const Curves curves = shown(train());
  for (const auto& [step, value] : curves.at("batch_loss")) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{6, 8, 14, 16}));  // calls at 3, 6, 8, 11, 14, 16
}

TEST_P(TensorBoardOf, TimeHasStepsPerSecond) {
  Model model = linear(strategy());
  model.fit(
      line(8).batch(4),
      with(TensorBoard({.log_dir = folder_.path(), .write_steps_per_second = true, .update_freq = 1}), 2));
  const Curves curves = shown(train());
  EXPECT_EQ(curves.at("batch_steps_per_second").size(), 4u);
  EXPECT_EQ(curves.at("epoch_steps_per_second").size(), 2u);
  // An epoch is no faster than the quicker of its steps.
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    const auto& steps = curves.at("batch_steps_per_second");
    const float rate = curves.at("epoch_steps_per_second")[epoch].second;
    EXPECT_GT(rate, 0);
    EXPECT_LE(rate, std::max(steps[2 * epoch].second, steps[2 * epoch + 1].second));
  }
}

TEST_P(TensorBoardOf, ParametersHasHistograms) {
  const Strategy on = strategy();
  Model model = on.scope([] {
    Model m(
        [] {
          return torch::nn::Sequential(torch::nn::Linear(2, 5), torch::nn::BatchNorm1d(5),
                                       torch::nn::Linear(5, 1));
        },
        {.seed = 1});
    m.compile({.optimizer = optimizers::SGD(), .loss = losses::mean_squared_error()});
    return m;
  });
  model.fit(line(8).batch(8), with(TensorBoard({.log_dir = folder_.path(), .histogram_freq = 2}), 3));
  std::map<std::string, std::vector<std::int64_t>> steps;
  for (const auto& [step, value] : internal::read_values(train())) {
    const auto* buckets = std::get_if<std::vector<internal::HistogramBucket>>(&value.value);
    if (!buckets) continue;
    steps[value.tag].push_back(step);
    const double values = std::accumulate(buckets->begin(), buckets->end(), 0.0,
                                          [](double sum, const auto& bucket) { return sum + bucket.count; });
    EXPECT_EQ(values, value.tag == "0/weight/histogram" ? 10
                      : value.tag == "2/bias/histogram" ? 1
                                                        : 5)
        << value.tag;
  }
  std::map<std::string, std::vector<std::int64_t>> expected;
  for (const char* name : {"0/weight", "0/bias", "1/weight", "1/bias", "1/running_mean", "1/running_var",
                           "2/weight", "2/bias"}) {
    expected[std::string(name) + "/histogram"] = {0, 2};
  }
  EXPECT_EQ(steps, expected);
}

TEST_P(TensorBoardOf, ATrialHasItsHyperParameters) {
  Model model = linear(strategy());
  model.fit(line(8).batch(4),
            with(TensorBoard({.log_dir = folder_.path(), .hparams = {{"learning_rate", 0.1}}}), 1));
  std::vector<std::string> seen;
  for (const auto& [step, value] : internal::read_values(folder_.path())) {
    EXPECT_TRUE(std::holds_alternative<internal::HParamsContent>(value.value));
    seen.push_back(value.tag);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"_hparams_/session_start_info", "_hparams_/session_end_info"}));
}

TEST_P(TensorBoardOf, AFitThatWasKilledShowsThatOfOneThatWasNot) {
  const Strategy on = strategy();
  for (const std::int64_t update_freq : {0, 2}) {
    std::string log_dir;
    const Training training{.strategy = on, .validation_data = line(4).batch(4), .callbacks = [&] {
                              return Callbacks{TensorBoard({.log_dir = log_dir, .update_freq = update_freq})};
                            }};
    const auto show = [&] { return std::pair(shown(log_dir + "/train"), shown(log_dir + "/validation")); };
    log_dir = folder_.file("whole" + std::to_string(update_freq));
    training.whole();
    const auto expected = show();
    EXPECT_EQ(tags(expected.first).size(), update_freq > 0 ? 3u : 2u);
    EXPECT_EQ(expected.second.at("epoch_loss").size(), 6u);
    int number = 0;
    for (const auto& [save, kill] : interruptions()) {
      log_dir = folder_.file(std::to_string(update_freq) + "-" + std::to_string(number++));
      training.killed(save, kill);
      EXPECT_EQ(show(), expected) << "saved at " << save.epoch << ", " << save.step << ", killed at "
                                  << kill.epoch << ", " << kill.step;
    }
  }
}

// Not only once something is written again: at once.
TEST(TensorBoardTest, HidesWhatAKilledProcessWroteLater) {
  for (const std::int64_t update_freq : {0, 1}) {
    const TempFolder folder;
    const Training training{
        .strategy = mirrored(2), .validation_data = line(4).batch(4), .callbacks = [&] {
          return Callbacks{TensorBoard({.log_dir = folder.path(), .update_freq = update_freq})};
        }};
    training.killed({2, 1}, {4, 0});
    const auto purged_from = [&](const char* run) {
      std::set<std::int64_t> steps;
      for (const auto& event : internal::read_events(folder.file(run))) {
        if (event.session_start) steps.insert(event.step);
      }
      return steps;
    };
    // After epochs 0 and 1 of 3 steps, and one more step.
    EXPECT_EQ(purged_from("train"), (std::set<std::int64_t>{update_freq > 0 ? 8 : 2}));
    EXPECT_EQ(purged_from("validation"), (std::set<std::int64_t>{8}));
  }
}

TEST(TensorBoardTest, RefusesWhatMakesNoSense) {
  EXPECT_EQ(message_of<InvalidArgument>([] { TensorBoard({.histogram_freq = -1}); }),
            "TensorBoard: histogram_freq is -1: expected 0 or more");
  EXPECT_THROW(TensorBoard({.update_freq = -2}), InvalidArgument);
  EXPECT_THROW(TensorBoard({.log_dir = ""}), InvalidArgument);
}

}  // namespace
}  // namespace tandem
