#include "train/progress_format.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::internal {
namespace {

Logs logs_with_loss(double loss) {
  Logs logs;
  logs.set("loss", loss);
  return logs;
}

TEST(FormatEta, GrowsFromSecondsToHours) {
  EXPECT_EQ(format_eta(0), "0s");
  EXPECT_EQ(format_eta(4.9), "4s");
  EXPECT_EQ(format_eta(60), "60s");
  EXPECT_EQ(format_eta(65), "1:05");
  EXPECT_EQ(format_eta(3600), "60:00");
  EXPECT_EQ(format_eta(3665), "1:01:05");
  EXPECT_EQ(format_eta(36000), "10:00:00");
}

TEST(FormatDuration, ChoosesTheUnitThatGivesAWholeNumber) {
  EXPECT_EQ(format_duration(5.4, "step"), "5s/step");
  EXPECT_EQ(format_duration(0, "step"), "0s/step");
  EXPECT_EQ(format_duration(0.999, "step"), "999ms/step");
  EXPECT_EQ(format_duration(0.001, "epoch"), "1ms/epoch");
  EXPECT_EQ(format_duration(0.00025, "step"), "250us/step");
}

TEST(FormatLogs, WritesSmallValuesWithAnExponent) {
  Logs logs = logs_with_loss(0.12344);
  logs.set("lr", 0.001);
  logs.set("gain", -2.0);
  logs.set("drift", -0.00025);
  EXPECT_EQ(format_logs(logs), " - loss: 0.1234 - lr: 1.0000e-03 - gain: -2.0000 - drift: -2.5000e-04");
}

TEST(FormatLogs, WritesWhatIsNoNumber) {
  EXPECT_EQ(format_logs(logs_with_loss(std::numeric_limits<double>::quiet_NaN())), " - loss: nan");
  EXPECT_EQ(format_logs(logs_with_loss(std::numeric_limits<double>::infinity())), " - loss: inf");
}

TEST(BarLine, ShowsTheTimeStillToGo) {
  EXPECT_EQ(
      bar_line({.steps = 35, .total = 938, .seconds = 1, .seconds_per_step = 0.005}, logs_with_loss(0.1234)),
      " 35/938 [>.............................] - ETA: 4s - loss: 0.1234");
}

TEST(BarLine, DrawsAnArrowUntilTheEnd) {
  const auto bar = [](std::int64_t steps) {
    return bar_line({.steps = steps, .total = 60}, {}).substr(0, 38);
  };
  EXPECT_EQ(bar(1), " 1/60 [..............................]");
  EXPECT_EQ(bar(2), " 2/60 [>.............................]");
  EXPECT_EQ(bar(30), "30/60 [==============>...............]");
  EXPECT_EQ(bar(59), "59/60 [============================>.]");
  EXPECT_EQ(bar(60), "60/60 [==============================]");
}

TEST(BarLine, ShowsTheTimeItTookWhenFinished) {
  EXPECT_EQ(
      bar_line({.steps = 938, .total = 938, .seconds = 4.7, .seconds_per_step = 0.005, .finished = true},
               logs_with_loss(0.1234)),
      "938/938 [==============================] - 5s 5ms/step - loss: 0.1234");
}

TEST(BarLine, StaysShortForAnEpochThatEndedEarly) {
  EXPECT_EQ(bar_line({.steps = 5, .total = 10, .seconds = 5, .seconds_per_step = 1, .finished = true}, {}),
            " 5/10 [==============>...............] - 5s 1s/step");
}

TEST(BarLine, HasNoBarForAnUnknownLength) {
  EXPECT_EQ(bar_line({.steps = 35, .seconds = 1.2, .seconds_per_step = 0.005}, logs_with_loss(0.1234)),
            "     35/Unknown - 1s 5ms/step - loss: 0.1234");
}

TEST(BarLine, SurvivesAnEpochWithoutSteps) {
  EXPECT_EQ(bar_line({.steps = 0, .total = 0, .finished = true}, {}),
            "0/0 [..............................] - 0s 0s/step");
}

TEST(BarLine, NeverGivesATimeBelowZero) {
  EXPECT_EQ(bar_line({.steps = 12, .total = 10, .seconds_per_step = 1}, {}),
            "12/10 [==============================] - ETA: 0s");
}

TEST(EpochLine, IsKerasForLogFiles) {
  EXPECT_EQ(
      epoch_line({.steps = 938, .total = 938, .seconds = 4.7, .seconds_per_step = 0.005, .finished = true},
                 logs_with_loss(0.1234)),
      "938/938 - 5s - loss: 0.1234 - 5s/epoch - 5ms/step");
}

TEST(CutTo, KeepsCharactersWhole) {
  EXPECT_EQ(cut_to("abc", 3), "abc");
  EXPECT_EQ(cut_to("abcd", 3), "abc");
  EXPECT_EQ(cut_to("a\u00e9\u00e9", 4), "a\u00e9");
  EXPECT_EQ(cut_to("\u00e9", 1), "");
}

}  // namespace
}  // namespace tandem::internal
