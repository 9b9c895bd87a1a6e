#include "train/progress_bar.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace tandem::internal {
namespace {

// A training run that takes the time it is told to.
class ProgressBarTest : public testing::Test {
 protected:
  void begin(const TrainingPlan& plan, bool redraw = true) { begin(plan, {.redraw = redraw}); }
  void begin(const TrainingPlan& plan, ProgressBarOptions options) {
    options.out = &out_;
    bar_ = progress_bar_with_clock(options, [this] { return now_; });
    bar_->on_train_begin(plan);
  }
  void step(std::int64_t index, double seconds, double loss = 2) {
    now_ += seconds;
    Logs logs;
    logs.set("loss", loss);
    bar_->on_train_batch_end({.step = index}, logs);
  }
  void end_epoch(double seconds_of_validation = 0) {
    now_ += seconds_of_validation;
    Logs logs;
    logs.set("loss", 2);
    if (seconds_of_validation > 0) logs.set("val_loss", 3);
    bar_->on_epoch_end(0, logs);
  }
  // What was written since the last call.
  std::string written() {
    const std::string text = out_.str();
    out_.str("");
    return text;
  }

  std::ostringstream out_;
  double now_ = 1000;
  std::shared_ptr<Callback> bar_;
};

TEST_F(ProgressBarTest, IsDrawnOverItself) {
  begin({.epochs = 3, .steps_per_epoch = 2});
  bar_->on_epoch_begin(0);
  EXPECT_EQ(written(), "Epoch 1/3\n");
  step(0, 1);
  EXPECT_EQ(written(), "\r1/2 [==============>...............] - ETA: 1s - loss: 2.0000");
  step(1, 1);
  EXPECT_EQ(written(), "\r2/2 [==============================] - ETA: 0s - loss: 2.0000");
  end_epoch();
  EXPECT_EQ(written(), "\r2/2 [==============================] - 2s 1s/step - loss: 2.0000\n");
  bar_->on_epoch_begin(1);
  EXPECT_EQ(written(), "Epoch 2/3\n");
}

TEST_F(ProgressBarTest, HasNoHeaderForASingleEpoch) {
  begin({.epochs = 1, .steps_per_epoch = 2});
  bar_->on_epoch_begin(0);
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressBarTest, LeavesTheFirstStepOutOfTheTimePerStep) {
  begin({.steps_per_epoch = 5});
  bar_->on_epoch_begin(0);
  step(0, 30);
  step(1, 2);
  step(2, 2);
  written();
  step(3, 2);
  EXPECT_EQ(written(), "\r4/5 [=======================>......] - ETA: 2s - loss: 2.0000");
}

TEST_F(ProgressBarTest, LeavesValidationOutOfTheTimePerStepAndShowsItsMetrics) {
  begin({.steps_per_epoch = 3});
  bar_->on_epoch_begin(0);
  for (int i = 0; i < 3; ++i) step(i, 1);
  written();
  end_epoch(9);
  EXPECT_EQ(written(),
            "\r3/3 [==============================] - 12s 1s/step - loss: 2.0000 - val_loss: 3.0000\n");
}

TEST_F(ProgressBarTest, IsNotDrawnMoreOftenThanItsInterval) {
  begin({.steps_per_epoch = 100});
  bar_->on_epoch_begin(0);
  step(0, 0.01);
  EXPECT_NE(written(), "");
  step(1, 0.02);
  step(2, 0.02);
  EXPECT_EQ(written(), "");
  step(3, 0.02);
  EXPECT_EQ(written().substr(0, 7), "\r  4/10");
}

TEST_F(ProgressBarTest, BlanksWhatIsLeftOfALongerLine) {
  begin({.steps_per_epoch = 4});
  bar_->on_epoch_begin(0);
  step(0, 1, 12345.6);
  const std::size_t longest = written().size();
  step(1, 1, 2);
  const std::string shorter = written();
  EXPECT_EQ(shorter.size(), longest);
  EXPECT_EQ(shorter.substr(shorter.size() - 10), "2.0000    ");
  step(2, 1, 2);
  EXPECT_EQ(written().back(), '0');
}

TEST_F(ProgressBarTest, LearnsAnUnknownLengthFromTheFirstEpoch) {
  begin({.epochs = 2});
  bar_->on_epoch_begin(0);
  written();
  step(0, 1);
  EXPECT_EQ(written(), "\r      1/Unknown - 1s 1s/step - loss: 2.0000");
  step(1, 1);
  written();
  end_epoch();
  EXPECT_EQ(written(), "\r2/2 [==============================] - 2s 1s/step - loss: 2.0000\n");
  bar_->on_epoch_begin(1);
  written();
  step(0, 1);
  EXPECT_EQ(written(), "\r1/2 [==============>...............] - ETA: 1s - loss: 2.0000");
}

TEST_F(ProgressBarTest, IsOneLinePerEpochInALog) {
  begin({.epochs = 2, .steps_per_epoch = 3}, /*redraw=*/false);
  bar_->on_epoch_begin(0);
  EXPECT_EQ(written(), "Epoch 1/2\n");
  for (int i = 0; i < 3; ++i) step(i, 1);
  EXPECT_EQ(written(), "");
  end_epoch(2);
  EXPECT_EQ(written(), "3/3 - 5s - loss: 2.0000 - val_loss: 3.0000 - 5s/epoch - 1s/step\n");
}

TEST_F(ProgressBarTest, SaysHowFarALongEpochIsInALog) {
  begin({.epochs = 2, .steps_per_epoch = 10}, /*redraw=*/false);
  bar_->on_epoch_begin(0);
  written();
  for (int i = 0; i < 2; ++i) step(i, 14);
  EXPECT_EQ(written(), "");
  step(2, 14);
  EXPECT_EQ(written(), " 3/10 [========>.....................] - ETA: 1:38 - loss: 2.0000\n");
  for (int i = 3; i < 5; ++i) step(i, 14);
  EXPECT_EQ(written(), "");
  step(5, 14);
  EXPECT_EQ(written(), " 6/10 [=================>............] - ETA: 56s - loss: 2.0000\n");
  step(8, 42);
  written();
  step(9, 40);
  EXPECT_EQ(written(), "") << "the epoch's own line says it";
  end_epoch();
  EXPECT_EQ(written().substr(0, 13), "10/10 - 166s ");
  bar_->on_epoch_begin(1);
  written();
  step(0, 29);
  EXPECT_EQ(written(), "") << "each epoch counts anew";
}

TEST_F(ProgressBarTest, SaysNothingWithinAnEpochIfThatIsWanted) {
  begin({.steps_per_epoch = 10}, {.redraw = false, .line_interval = 0});
  bar_->on_epoch_begin(0);
  for (int i = 0; i < 5; ++i) step(i, 100);
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressBarTest, GoesOnInTheMiddleOfAnEpoch) {
  begin({.epochs = 2, .steps_per_epoch = 10});
  bar_->on_epoch_resume(1, 4);
  EXPECT_EQ(written(), "Epoch 2/2\n");
  step(4, 30);
  EXPECT_EQ(written(), "\r 5/10 [==============>...............] - ETA: 2:30 - loss: 2.0000");
  step(5, 2);
  written();
  step(6, 2);
  EXPECT_EQ(written().substr(0, 49), "\r 7/10 [====================>.........] - ETA: 6s");
  for (int i = 7; i < 10; ++i) step(i, 2);
  written();
  end_epoch();
  EXPECT_EQ(written(), "\r10/10 [==============================] - 40s 2s/step - loss: 2.0000\n");
}

TEST_F(ProgressBarTest, EndsAnEpochOfWhichNothingWasLeft) {
  begin({.steps_per_epoch = 10}, /*redraw=*/false);
  bar_->on_epoch_resume(0, 10);
  end_epoch();
  EXPECT_EQ(written(), "10/10 - 0s - loss: 2.0000 - 0s/epoch - 0s/step\n");
}

TEST_F(ProgressBarTest, IsNeverWiderThanTheTerminalWhileItIsRedrawn) {
  begin({.steps_per_epoch = 2}, {.columns = 42});
  bar_->on_epoch_begin(0);
  step(0, 1);
  EXPECT_EQ(written(), "\r1/2 [==============>...............] - ET");
  step(1, 1);
  written();
  end_epoch();
  EXPECT_EQ(written(), "\r2/2 [==============================] - 2s 1s/step - loss: 2.0000\n");
}

TEST_F(ProgressBarTest, LeavesTheLineWhenTheTrainingEndsWithinAnEpoch) {
  begin({.steps_per_epoch = 5});
  bar_->on_epoch_begin(0);
  step(0, 1);
  written();
  bar_->on_train_end({});
  EXPECT_EQ(written(), "\n");
  begin({.steps_per_epoch = 1});
  bar_->on_epoch_begin(0);
  step(0, 1);
  end_epoch();
  written();
  bar_->on_train_end({});
  EXPECT_EQ(written(), "");
}

TEST(ProgressBar, RunsOnTheRealClock) {
  std::ostringstream out;
  const auto bar = progress_bar({.out = &out});
  bar->on_train_begin({.epochs = 1, .steps_per_epoch = 1});
  bar->on_epoch_begin(0);
  Logs logs;
  bar->on_train_batch_end({}, logs);
  bar->on_epoch_end(0, logs);
  EXPECT_EQ(out.str().back(), '\n');
  EXPECT_NE(out.str().find("1/1 [==============================] - 0s "), std::string::npos);
}

}  // namespace
}  // namespace tandem::internal
