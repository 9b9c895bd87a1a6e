#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>

#include "strategy/tasks_in_one_process.h"
#include "support/errors.h"
#include "support/oracle.h"
#include "support/temp_folder.h"
#include "train/interrupted_fit.h"

namespace tandem {
namespace {

using namespace testing_support;

const double kNan = std::numeric_limits<double>::quiet_NaN();

// What is measured in an epoch, in place of what was.
std::shared_ptr<Callback> script(const std::string& name, std::vector<double> values) {
  return LambdaCallback({.on_epoch_end = [name, values = std::move(values)](std::int64_t epoch, Logs& logs) {
    logs.set(name, values[static_cast<std::size_t>(epoch)]);
  }});
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// One device, or two replicas.
class KerasCallbacks : public testing::TestWithParam<int> {
 protected:
  static Strategy strategy() {
    if (GetParam() == 1) return OneDeviceStrategy("/cpu:0", {.threads_per_replica = 1});
    return mirrored(GetParam());
  }

  static History fit(Model& model, std::int64_t epochs, Callbacks callbacks) {
    return model.fit(line(4).batch(4),
                     {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent});
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, KerasCallbacks, testing::Values(1, 2));

TEST_P(KerasCallbacks, StopAFitWhenKerasDoes) {
  const auto cases = read_oracle("callbacks");
  ASSERT_EQ(cases.size(), 15u);
  const Strategy on = strategy();
  for (const auto& c : cases) {
    const std::vector<double> values = c.at("val_loss");
    const auto& stop = c.at("early_stop_epoch");
    Model model = linear(on);
    const History history =
        fit(model, static_cast<std::int64_t>(values.size()),
            {script("val_loss", values),
             EarlyStopping({.min_delta = c.at("min_delta"), .patience = c.at("patience")})});
    EXPECT_EQ(history.epoch.size(), stop.is_null() ? values.size() : stop.get<std::size_t>() + 1);
  }
}

TEST_P(KerasCallbacks, ReduceTheLearningRateWhenKerasDoes) {
  const Strategy on = strategy();
  for (const auto& c : read_oracle("callbacks")) {
    const auto& plateau = c.at("plateau");
    const std::vector<double> values = c.at("val_loss");
    std::vector<double> expected = plateau.at("learning_rates");  // after each epoch
    Model model = linear(on, 0.1F);
    const History history =
        fit(model, static_cast<std::int64_t>(values.size()),
            {script("val_loss", values), ReduceLROnPlateau({.factor = plateau.at("factor"),
                                                            .patience = plateau.at("patience"),
                                                            .min_delta = plateau.at("min_delta"),
                                                            .cooldown = plateau.at("cooldown")})});
    EXPECT_EQ(model.optimizer().learning_rate(), expected.back());
    expected.insert(expected.begin(), 0.1F);
    expected.pop_back();
    EXPECT_EQ(history.history.at("lr"), expected);
  }
}

TEST_P(KerasCallbacks, BringBackTheBestEpoch) {
  const Strategy on = strategy();
  struct Case {
    std::vector<double> val_loss;
    std::int64_t patience;
    std::size_t kept;
  };
  for (const auto& [val_loss, patience, kept] :
       {Case{{3, 1, 2, 2, 0}, 2, 1},           // stopped after the fourth
        Case{{kNan, kNan, kNan, kNan}, 3, 0},  // nothing was ever good: the first
        Case{{3, 1, 2, 2}, 3, 3},              // not stopped: as the training left it
        Case{{3, 2, 1, 1, 1}, 2, 2}}) {
    Model model = linear(on);
    std::vector<std::string> digests;
    const auto record = LambdaCallback(
        {.on_epoch_end = [&](std::int64_t, Logs&) { digests.push_back(model.parameter_digest()); }});
    fit(model, static_cast<std::int64_t>(val_loss.size()),
        {record, script("val_loss", val_loss),
         EarlyStopping({.patience = patience, .restore_best_weights = true})});
    EXPECT_EQ(model.parameter_digest(), digests[kept]);
    for (std::size_t i = 0; i < digests.size(); ++i) {
      EXPECT_EQ(digests[i] == digests[kept], i == kept);
    }
  }
}

TEST_P(KerasCallbacks, SayWhatTheyDo) {
  Model model = linear(strategy());
  testing::internal::CaptureStderr();
  fit(model, 9,
      {script("val_loss", {3, 1, 2, 2, 2, 2, 2, 2, 2}),
       EarlyStopping({.patience = 3, .verbose = true, .restore_best_weights = true}),
       ReduceLROnPlateau({.factor = 0.5, .patience = 2, .verbose = true})});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, "epoch 5: early stopping"), 1u) << said;
  EXPECT_EQ(count(said, "its values of the end of the best epoch, 2"), 1u) << said;
  EXPECT_EQ(count(said, "epoch 4: the learning rate is reduced to 0.05"), 1u) << said;
}

TEST_P(KerasCallbacks, WarnOnceOfAMetricThatThereIsNot) {
  Model model = linear(strategy());
  testing::internal::CaptureStderr();
  EXPECT_EQ(fit(model, 4, {EarlyStopping(), ReduceLROnPlateau({.monitor = "acc"})}).epoch.size(), 4u);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said,
                  "EarlyStopping goes by \"val_loss\", which is not in the logs of this epoch; there "
                  "are: loss\n"),
            1u)
      << said;
  EXPECT_EQ(count(said,
                  "ReduceLROnPlateau goes by \"acc\", which is not in the logs of this epoch; there "
                  "are: loss, lr\n"),
            1u)
      << said;
}

TEST_P(KerasCallbacks, BeginAnewWithEachFit) {
  Model model = linear(strategy());
  const Callbacks callbacks{script("val_loss", {1, 2, 2, 2, 2}),
                            EarlyStopping({.patience = 2, .restore_best_weights = true}),
                            ReduceLROnPlateau({.factor = 0.5, .patience = 2})};
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(fit(model, 5, callbacks).epoch.size(), 3u);
    EXPECT_DOUBLE_EQ(model.optimizer().learning_rate(), i == 1 ? 0.05 : 0.025);
  }
}

TEST_P(KerasCallbacks, GoOnAsIfNothingHadHappened) {
  const std::vector<std::vector<double>> losses{{5, 4, 4, 3, 3, 3}, {5, 1, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1}};
  const Strategy on = strategy();
  for (const auto& val_loss : losses) {
    const Training training{
        .strategy = on, .callbacks = [&] {
          return Callbacks{script("val_loss", val_loss),
                           LearningRateScheduler([](std::int64_t, double rate) { return rate * 0.75; }),
                           ReduceLROnPlateau({.factor = 0.5, .patience = 1, .cooldown = 1}),
                           EarlyStopping({.patience = 3, .restore_best_weights = true})};
        }};
    const auto expected = training.whole();
    for (const auto& [save, kill] : interruptions()) {
      // A training that has stopped before cannot be killed.
      if (kill.epoch >= static_cast<std::int64_t>(expected.history.epoch.size())) continue;
      EXPECT_EQ(training.killed(save, kill), expected) << "saved at " << save.epoch << ", " << save.step
                                                       << ", killed at " << kill.epoch << ", " << kill.step;
    }
  }
}

TEST_P(KerasCallbacks, StopAtALossThatIsNoNumber) {
  at::Tensor x = torch::randn({20, 2});
  x[10][0] = kNan;  // the third step
  const auto bad = Dataset::from_tensors(x, torch::randn({20, 1})).batch(4);
  Model model = linear(strategy());
  testing::internal::CaptureStderr();
  const History history = model.fit(bad, {.epochs = 3,
                                          .callbacks = {TerminateOnNaN()},
                                          .verbose = Verbose::kSilent,
                                          .on_nan = OnNan::kContinue});
  EXPECT_NE(
      testing::internal::GetCapturedStderr().find("the loss is nan after step 3 of epoch 1: training ends"),
      std::string::npos);
  EXPECT_EQ(history.steps, 3);
  EXPECT_TRUE(std::isnan(history.history.at("loss").at(0)));
}

TEST_P(KerasCallbacks, CallTheFunctionsTheyAreGiven) {
  std::vector<std::string> calls;
  const auto say = [&](const std::string& what, std::int64_t n) {
    calls.push_back(what + " " + std::to_string(n));
  };
  Model model = linear(strategy());
  model.fit(
      line(8).batch(4),
      {.callbacks = {LambdaCallback(
                         {.on_epoch_begin = [&](std::int64_t epoch) { say("epoch_begin", epoch); },
                          .on_epoch_end = [&](std::int64_t epoch, Logs&) { say("epoch_end", epoch); },
                          .on_train_begin = [&](const TrainingPlan& plan) { say("begin", plan.epochs); },
                          .on_train_end = [&](const Logs& logs) { say("end", logs.has("loss")); },
                          .on_train_batch_begin = [&](std::int64_t step) { say("batch_begin", step); },
                          .on_train_batch_end = [&](const TrainStep& step,
                                                    const Logs&) { say("batch_end", step.step); }}),
                     LambdaCallback({})},
       .verbose = Verbose::kSilent});
  EXPECT_EQ(calls, (std::vector<std::string>{"begin 1", "epoch_begin 0", "batch_begin 0", "batch_end 0",
                                             "batch_begin 1", "batch_end 1", "epoch_end 0", "end 1"}));
}

TEST_P(KerasCallbacks, WriteTheFileOfKeras) {
  const TempFolder folder;
  const std::string path = folder.file("log.csv");
  Model model = linear(strategy());
  const auto train = [&](CSVLoggerOptions options, std::int64_t epochs) {
    fit(model, epochs,
        {script("loss", {2.302585, 0.5, 1e-5}), script("val_loss", {2, 0.25, kNan}),
         LearningRateScheduler([](std::int64_t, double) { return 0.1; }), CSVLogger(std::move(options))});
  };
  const std::string two =
      "epoch,loss,lr,val_loss\r\n"
      "0,2.302585,0.1,2.0\r\n"
      "1,0.5,0.1,0.25\r\n";
  train({.filename = path}, 3);
  EXPECT_EQ(read(path), two + "2,1e-05,0.1,nan\r\n");
  train({.filename = path}, 2);
  EXPECT_EQ(read(path), two);
  train({.filename = path, .append = true}, 1);
  EXPECT_EQ(read(path), two + "0,2.302585,0.1,2.0\r\n");
  train({.filename = path, .separator = ";"}, 1);
  EXPECT_EQ(read(path), "epoch;loss;lr;val_loss\r\n0;2.302585;0.1;2.0\r\n");
}

TEST_P(KerasCallbacks, GoOnWithTheFileOfKeras) {
  const TempFolder folder;
  const std::string path = folder.file("log.csv");
  const std::string before = "epoch,loss,val_loss\r\n7,1.0,2.0\r\n";
  const Strategy on = strategy();
  for (const bool append : {false, true}) {
    const Training training{.strategy = on, .callbacks = [&] {
                              // Validated in every other epoch only, which the first one after a restart need
                              // not be.
                              return Callbacks{LambdaCallback({.on_epoch_end =
                                                                   [](std::int64_t epoch, Logs& logs) {
                                                                     if (epoch % 2 == 0)
                                                                       logs.set("val_loss", 0.5);
                                                                   }}),
                                               CSVLogger({.filename = path, .append = append})};
                            }};
    std::ofstream(path, std::ios::binary) << before;
    training.whole();
    const std::string expected = read(path);
    EXPECT_EQ(count(expected, "\r\n"), append ? 8u : 7u);
    EXPECT_EQ(expected.find(before), append ? 0u : std::string::npos);
    for (const auto& [save, kill] : interruptions()) {
      std::ofstream(path, std::ios::binary) << before;
      training.killed(save, kill);
      EXPECT_EQ(read(path), expected) << "saved at " << save.epoch << ", " << save.step << ", killed at "
                                      << kill.epoch << ", " << kill.step;
    }
  }
}

// Through real checkpoints, the last one made when the training is over.
TEST_P(KerasCallbacks, GoOnWithMoreEpochs) {
  const TempFolder folder;
  const Strategy on = strategy();
  const auto train = [&](const std::string& run, std::int64_t epochs) {
    Model model = linear(on);
    model.fit(
        line(24).shuffle(24).batch(8),
        {.epochs = epochs,
         .callbacks = {script("val_loss", {3, 1, 2, 2, 2, 2}),
                       ReduceLROnPlateau({.factor = 0.5, .patience = 2}),
                       EarlyStopping({.patience = 4, .restore_best_weights = true}),
                       CSVLogger({.filename = folder.file(run + ".csv")}),
                       BackupAndRestore(
                           {.backup_dir = folder.file(run), .save_freq = 100, .delete_checkpoint = false})},
         .verbose = Verbose::kSilent});
    return std::pair(read(folder.file(run + ".csv")), model.parameter_digest());
  };
  const auto expected = train("whole", 6);
  EXPECT_NE(train("parts", 4), expected);
  EXPECT_EQ(train("parts", 6), expected);
}

TEST(KerasCallbacksOfTasks, DecideAlikeAndWriteOnce) {
  const TempFolder folder;
  const std::string path = folder.file("log.csv");
  std::vector<std::string> results(2);
  run_tasks(2, 1, {.timeout = std::chrono::seconds(20)}, [&](Strategy& strategy, int rank) {
    Model model = linear(strategy);
    std::string best;
    const History history = model.fit(
        line(24).batch(8), {.epochs = 9,
                            .callbacks = {LambdaCallback({.on_epoch_end =
                                                              [&](std::int64_t epoch, Logs&) {
                                                                const std::string now =
                                                                    model.parameter_digest();
                                                                if (epoch == 1) best = now;
                                                              }}),
                                          script("val_loss", {3, 1, 2, 2, 2, 2, 2, 2, 2}),
                                          ReduceLROnPlateau({.factor = 0.5, .patience = 1}),
                                          EarlyStopping({.patience = 3, .restore_best_weights = true}),
                                          CSVLogger({.filename = path}),
                                          TensorBoard({.log_dir = folder.file("logs"), .histogram_freq = 1})},
                            .verbose = Verbose::kSilent});
    EXPECT_EQ(history.epoch.size(), 5u);
    EXPECT_EQ(history.history.at("lr"), (std::vector<double>{0.1, 0.1, 0.1, 0.05, 0.025}));
    EXPECT_EQ(model.parameter_digest(), best);
    results[static_cast<std::size_t>(rank)] = best;
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(count(read(path), "epoch,loss,lr,val_loss\r\n"), 1u);
  EXPECT_EQ(count(read(path), "\r\n"), 6u);
  for (const char* run : {"logs/train", "logs/validation"}) {
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / run), {}), 1) << run;
  }
}

TEST(KerasCallbackOptions, AreCheckedAtOnce) {
  EXPECT_EQ(message_of<InvalidArgument>([] { EarlyStopping({.patience = -1}); }),
            "early stopping: patience is -1: expected 0 or more");
  EXPECT_EQ(message_of<InvalidArgument>([] { ReduceLROnPlateau({.factor = 2}); }),
            "reduce on plateau: factor is 2: expected more than 0 and less than 1");
  EXPECT_EQ(message_of<InvalidArgument>([] { CSVLogger({}); }), "CSVLogger: the filename is empty");
  EXPECT_THROW(CSVLogger({.filename = "log.csv", .separator = ""}), InvalidArgument);
  EXPECT_THROW(LearningRateScheduler({}), InvalidArgument);
}

TEST(CSVLoggerTest, SaysBeforeTheFirstStepThatItCannotWrite) {
  const TempFolder folder;
  Model model = linear(mirrored(2));
  EXPECT_EQ(message_of<NotFound>([&] {
              model.fit(line(8).batch(4), {.callbacks = {CSVLogger({.filename = folder.file("no/log.csv")})},
                                           .verbose = Verbose::kSilent});
            }),
            "cannot write \"" + folder.file("no/log.csv") + "\": open: No such file or directory");
  EXPECT_EQ(model.global_step(), 0);
}

// The line of an epoch that max_steps cut short gives way to that of the whole epoch.
TEST(CSVLoggerTest, ReplacesTheLineOfAnEpochThatWasCutShort) {
  const TempFolder folder;
  const std::string path = folder.file("log.csv");
  std::optional<SavedFit> saved;
  const auto train = [&](std::optional<std::int64_t> max_steps, Moment save) {
    Model model = linear(mirrored(2));
    model.fit(line(24).batch(8),
              {.epochs = 3,
               .max_steps = max_steps,
               .callbacks = {CSVLogger({.filename = path}),
                             std::make_shared<Interruption>(save, Moment{.epoch = -1}, saved)},
               .verbose = Verbose::kSilent});
    return read(path);
  };
  const std::string expected = train({}, {.epoch = -1});
  EXPECT_EQ(count(train(5, {1, 2}), "\r\n"), 3u);
  ASSERT_TRUE(saved);
  EXPECT_EQ(train({}, {}), expected);
}

}  // namespace
}  // namespace tandem
