#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "support/errors.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing_support::message_of;
using testing_support::mirrored;

Model linear(const Strategy& strategy, double rate = 0.1) {
  return strategy.scope([&] {
    Model m([] { return torch::nn::Linear(2, 1); }, {.seed = 1});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = rate}), .loss = losses::mean_squared_error()});
    return m;
  });
}

Dataset line(int rows) {  // y = 3 a - 2 b + 1
  torch::manual_seed(4);
  const at::Tensor x = torch::randn({rows, 2});
  return Dataset::from_tensors(x, x.matmul(torch::tensor({{3.f}, {-2.f}})) + 1);
}

FitOptions quiet(FitOptions options = {}) {
  options.verbose = Verbose::kSilent;
  return options;
}

struct Recorder : Callback {
  void on_train_begin(const TrainingPlan& plan) override {
    events.push_back("train_begin " + std::to_string(plan.epochs) + "x" +
                     std::to_string(plan.steps_per_epoch));
  }
  void on_epoch_begin(std::int64_t epoch) override {
    events.push_back("epoch_begin " + std::to_string(epoch));
  }
  void on_train_batch_begin(std::int64_t step) override {
    events.push_back("batch_begin " + std::to_string(step));
  }
  void on_train_batch_end(const TrainStep& step, const Logs&) override {
    events.push_back("batch_end " + std::to_string(step.step) + " global " +
                     std::to_string(step.global_step) + " rows " + std::to_string(step.rows));
  }
  void on_epoch_end(std::int64_t epoch, Logs& logs) override {
    events.push_back("epoch_end " + std::to_string(epoch) + (logs.has("val_loss") ? " validated" : ""));
  }
  void on_train_end(const Logs&) override { events.push_back("train_end"); }

  std::vector<std::string> events;
};

TEST(FitTest, CallsBackInKerasOrder) {
  Model model = linear(mirrored(2));
  const auto recorder = std::make_shared<Recorder>();
  model.fit(line(7).batch(4),
            quiet({.epochs = 2, .validation_data = line(4).batch(4), .callbacks = {recorder}}));
  EXPECT_EQ(recorder->events,
            (std::vector<std::string>{"train_begin 2x2", "epoch_begin 0", "batch_begin 0",
                                      "batch_end 0 global 1 rows 4", "batch_begin 1",
                                      "batch_end 1 global 2 rows 3", "epoch_end 0 validated", "epoch_begin 1",
                                      "batch_begin 0", "batch_end 0 global 3 rows 4", "batch_begin 1",
                                      "batch_end 1 global 4 rows 3", "epoch_end 1 validated", "train_end"}));
}

TEST(FitTest, LearnsALineUnderAnyNumberOfReplicas) {
  for (const int replicas : {1, 2, 3}) {
    Model model = linear(mirrored(replicas));
    const History history = model.fit(line(64).shuffle(64).batch(16), quiet({.epochs = 40}));
    EXPECT_LT(history.history.at("loss").back(), 1e-3);
    EXPECT_NEAR(model.values().at("weight")[0][0].item<float>(), 3, 0.05);
    EXPECT_NEAR(model.values().at("bias")[0].item<float>(), 1, 0.05);
    EXPECT_EQ(history.steps, 160);
    EXPECT_EQ(history.epoch.size(), 40u);
  }
}

TEST(FitTest, ReportsTheMeanLossOverTheRowsOfTheEpoch) {
  // With a rate that moves nothing, the epoch's loss is that of evaluate, short last batch included.
  Model model = linear(mirrored(2), 1e-30);
  const auto data = line(11).batch(4);
  EXPECT_NEAR(model.fit(data, quiet()).history.at("loss")[0], model.evaluate(data).at("loss"), 1e-6);
}

TEST(FitTest, RefusesOptionsAndDataThatCannotWork) {
  Model model = linear(mirrored(3));
  const auto message = [&](const Dataset& data, FitOptions options = {}) {
    return message_of<InvalidArgument>([&] { model.fit(data, quiet(options)); });
  };
  EXPECT_EQ(message(line(8).batch(2)),
            "the global batch of 2 is smaller than the 3 replicas it is split over: expected 3 rows or more, "
            "or fewer replicas");
  EXPECT_EQ(message(line(8).batch(4), {.epochs = 0}), "epochs is 0: expected 1 or more");
  EXPECT_EQ(message(line(8).batch(4), {.epochs = 2, .initial_epoch = 2}),
            "initial_epoch is 2: expected 0 to 1 (epochs is 2, the number of the last one)");
  EXPECT_EQ(message(line(8).batch(4), {.steps_per_epoch = 0}), "steps_per_epoch is 0: expected 1 or more");
  EXPECT_EQ(message(line(8).batch(4), {.max_steps = -1}), "max_steps is -1: expected 1 or more");
  EXPECT_NE(message(line(8)).find("call .batch(n)"), std::string::npos);
  EXPECT_NE(message(line(8).batch(4).repeat()).find("the dataset has no end"), std::string::npos);
  EXPECT_NE(message(line(8).skip(8).batch(4)).find("no batches to train on"), std::string::npos);
  EXPECT_EQ(model.global_step(), 0);
}

TEST(FitTest, GoesOnAcrossEpochsWithStepsPerEpoch) {
  Model model = linear(mirrored(2));
  const auto recorder = std::make_shared<Recorder>();
  const History history = model.fit(line(10).batch(4).repeat(),
                                    quiet({.epochs = 2, .steps_per_epoch = 4, .callbacks = {recorder}}));
  EXPECT_EQ(history.steps, 8);
  // 4, 4, 2, then the next pass: 4; the second epoch begins in the middle of a pass.
  EXPECT_EQ(recorder->events[7], "batch_end 2 global 3 rows 2");
  EXPECT_EQ(recorder->events[13], "batch_end 0 global 5 rows 4");
  EXPECT_EQ(recorder->events[15], "batch_end 1 global 6 rows 2");
}

TEST(FitTest, EndsWhenTheDataRunsDry) {
  Model model = linear(mirrored(2));
  EXPECT_EQ(model.fit(line(10).batch(4), quiet({.epochs = 5, .steps_per_epoch = 2})).steps, 3);
}

TEST(FitTest, EndsAfterMaxSteps) {
  Model model = linear(mirrored(2));
  const History history = model.fit(line(12).batch(4), quiet({.epochs = 100, .max_steps = 7}));
  EXPECT_EQ(history.steps, 7);
  EXPECT_EQ(history.epoch.size(), 3u);
  EXPECT_EQ(model.global_step(), 7);
}

TEST(FitTest, StopsWhenACallbackAsks) {
  struct StopAtThird : Callback {
    void on_train_batch_end(const TrainStep& step, const Logs&) override {
      if (step.global_step == 3) model().stop_training();
    }
  };
  Model model = linear(mirrored(2));
  EXPECT_EQ(model.fit(line(40).batch(4), quiet({.epochs = 3, .callbacks = {std::make_shared<StopAtThird>()}}))
                .steps,
            3);
  // And goes on when asked again.
  EXPECT_EQ(model.fit(line(8).batch(4), quiet()).steps, 2);
}

TEST(FitTest, ChangesTheLearningRateOfEveryShard) {
  const auto schedule =
      LearningRateScheduler([](std::int64_t epoch, double) { return epoch == 0 ? 0.1 : 0.02; });
  const auto train = [&](int replicas) {
    const auto strategy = mirrored(replicas);
    Model model = strategy.scope([] {
      Model m(
          [] {
            torch::nn::Linear net(300, 1);
            net->to(torch::kDouble);
            return net;
          },
          {.seed = 1});
      m.compile({.optimizer = optimizers::SGD({.learning_rate = 7, .momentum = 0.5}),
                 .loss = losses::mean_squared_error()});
      return m;
    });
    torch::manual_seed(1);
    const auto data = Dataset::from_tensors(torch::randn({20, 300}, torch::kDouble) / 30,
                                            torch::randn({20, 1}, torch::kDouble));
    const History history = model.fit(data.batch(8), quiet({.epochs = 2, .callbacks = {schedule}}));
    EXPECT_EQ(history.history.at("lr"), (std::vector<double>{0.1, 0.02}));
    EXPECT_DOUBLE_EQ(model.optimizer().learning_rate(), 0.02);
    return model.values();
  };
  testing_support::expect_near(train(4), train(1), 1e-9);
}

// A model that fails on one replica, at one step.
struct FailingImpl : torch::nn::Module {
  FailingImpl() { layer = register_module("layer", torch::nn::Linear(2, 1)); }
  at::Tensor forward(const at::Tensor& x) {
    if (x[0][0].item<float>() == 666) throw std::domain_error("the number of the beast");
    return layer(x);
  }
  torch::nn::Linear layer{nullptr};
};

TEST(FitTest, RethrowsWhatOneReplicaThrowsAndCanGoOn) {
  const auto strategy = mirrored(3);
  Model model = strategy.scope([] {
    Model m([] { return std::make_shared<FailingImpl>(); }, {.seed = 1});
    m.compile({.optimizer = optimizers::SGD(), .loss = losses::mean_squared_error()});
    return m;
  });
  at::Tensor x = torch::randn({9, 2});
  x[3][0] = 666;  // the first row of replica 1
  const auto bad = Dataset::from_tensors(x, torch::randn({9, 1})).batch(9);
  const std::string before = model.parameter_digest();
  EXPECT_EQ(message_of<std::domain_error>([&] { model.fit(bad, quiet()); }), "the number of the beast");
  EXPECT_EQ(model.parameter_digest(), before);
  EXPECT_EQ(model.fit(line(9).batch(9), quiet()).steps, 1);
}

TEST(NanLoss, StopsBeforeTheUpdateAndNamesTheStep) {
  Model model = linear(mirrored(2));
  at::Tensor x = torch::randn({12, 2});
  x[10][0] = std::numeric_limits<float>::quiet_NaN();  // step 2, replica 1
  const auto bad = Dataset::from_tensors(x, torch::randn({12, 1})).batch(4);
  const std::string message = message_of<NonFiniteLoss>([&] { model.fit(bad, quiet()); });
  EXPECT_NE(message.find("the loss is nan at step 2 (replica 1)"), std::string::npos) << message;
  EXPECT_EQ(model.global_step(), 2);
  EXPECT_TRUE(model.values().at("weight").isfinite().all().item<bool>());
  EXPECT_EQ(model.fit(bad, quiet({.on_nan = OnNan::kContinue})).steps, 3);
  EXPECT_FALSE(model.values().at("weight").isfinite().all().item<bool>());
}

TEST(UnevenEnd, AReplicaWithoutRowsAddsNothing) {
  // 5 rows over 4 replicas: 2, 2, 1, 0. One step must equal that of one replica.
  const auto step = [](int replicas) {
    const auto strategy = mirrored(replicas);
    Model model = strategy.scope([] {
      Model m(
          [] {
            torch::nn::Linear net(2, 1);
            net->to(torch::kDouble);
            return net;
          },
          {.seed = 1});
      m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = losses::mean_squared_error()});
      return m;
    });
    torch::manual_seed(2);
    const auto data =
        Dataset::from_tensors(torch::randn({5, 2}, torch::kDouble), torch::randn({5, 1}, torch::kDouble));
    model.fit(data.batch(8), quiet({.epochs = 3}));
    return model.values();
  };
  testing_support::expect_near(step(4), step(1), 1e-12);
}

}  // namespace
}  // namespace tandem
