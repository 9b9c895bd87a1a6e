#include "train/early_stopping_rule.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/errors.h"
#include "support/oracle.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;

// The epoch after which it stops.
std::optional<std::int64_t> stops_at(EarlyStoppingRule& rule, const std::vector<double>& values) {
  for (std::size_t epoch = 0; epoch < values.size(); ++epoch) {
    if (rule.end_epoch(static_cast<std::int64_t>(epoch), values[epoch]).stop) return epoch;
  }
  return std::nullopt;
}

std::optional<std::int64_t> stops_at(EarlyStoppingRuleOptions options, const std::vector<double>& values) {
  EarlyStoppingRule rule(std::move(options));
  return stops_at(rule, values);
}

TEST(EarlyStoppingRule, StopsWhenKerasDoes) {
  const auto cases = testing_support::read_oracle("callbacks");
  ASSERT_EQ(cases.size(), 15u);
  for (const auto& c : cases) {
    std::optional<std::int64_t> expected;
    if (!c.at("early_stop_epoch").is_null()) expected = c.at("early_stop_epoch");
    EXPECT_EQ(stops_at({.min_delta = c.at("min_delta"), .patience = c.at("patience")}, c.at("val_loss")),
              expected);
  }
}

TEST(EarlyStoppingRule, GoesOnFromItsState) {
  for (const auto& c : testing_support::read_oracle("callbacks")) {
    const EarlyStoppingRuleOptions options{.min_delta = c.at("min_delta"), .patience = c.at("patience")};
    const std::vector<double> values = c.at("val_loss");
    EarlyStoppingRule whole(options);
    EarlyStoppingRule::State saved;
    for (std::size_t epoch = 0; epoch < values.size(); ++epoch) {
      EarlyStoppingRule resumed(options);  // killed after every epoch
      resumed.set_state(saved);
      const auto number = static_cast<std::int64_t>(epoch);
      EXPECT_EQ(resumed.end_epoch(number, values[epoch]).stop, whole.end_epoch(number, values[epoch]).stop);
      saved = resumed.state();
    }
    EXPECT_EQ(saved, whole.state());
  }
}

TEST(EarlyStoppingRule, NeverStopsAfterTheFirstEpoch) {
  EXPECT_EQ(stops_at({.baseline = 0.1}, {1.0, 1.0}), 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(stops_at(EarlyStoppingRuleOptions{}, {nan, nan}), 1);
}

TEST(EarlyStoppingRule, TellsFromTheNameWhatIsBetter) {
  const std::vector<double> rising{0.1, 0.2, 0.3, 0.4};
  for (const char* name : {"val_accuracy", "acc", "val_auc"}) {
    EXPECT_EQ(stops_at({.monitor = name, .patience = 1}, rising), std::nullopt) << name;
  }
  for (const char* name : {"val_loss", "accuracy_gap", "fmeasure"}) {
    EXPECT_EQ(stops_at({.monitor = name, .patience = 1}, rising), 1) << name;
  }
  EXPECT_EQ(stops_at({.patience = 1, .mode = MonitorMode::kMax}, rising), std::nullopt);
  EXPECT_EQ(stops_at({.monitor = "acc", .patience = 1, .mode = MonitorMode::kMin}, rising), 1);
}

TEST(EarlyStoppingRule, WantsMoreThanTheSmallestDifference) {
  EXPECT_EQ(stops_at({.min_delta = 0.5, .patience = 1}, {4, 3.5}), 1);
  EXPECT_EQ(stops_at({.min_delta = 0.5, .patience = 1}, {4, 3.25}), std::nullopt);
  EXPECT_EQ(stops_at({.monitor = "acc", .min_delta = 0.5, .patience = 1}, {3, 3.5}), 1);
}

// Getting better is not enough while the baseline is not reached.
TEST(EarlyStoppingRule, WantsTheBaselineWithinItsPatience) {
  EXPECT_EQ(stops_at({.patience = 3, .baseline = 0.5}, {1.0, 0.9, 0.8, 0.85}), 3);
  EXPECT_EQ(stops_at({.patience = 3, .baseline = 0.5}, {1.0, 0.9, 0.4, 0.45, 0.45, 0.45}), 5);
}

TEST(EarlyStoppingRule, BeginsToCountLater) {
  EXPECT_EQ(stops_at({.patience = 1, .start_from_epoch = 3}, {1, 2, 3, 2, 3}), 4);
}

TEST(EarlyStoppingRule, SaysWhichParametersToKeep) {
  EarlyStoppingRule rule({.patience = 9});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(rule.end_epoch(0, nan).keep);  // the first, in case that nothing gets better
  EXPECT_FALSE(rule.end_epoch(1, nan).keep);
  EXPECT_TRUE(rule.end_epoch(2, 1).keep);
  EXPECT_FALSE(rule.end_epoch(3, 2).keep);
  EXPECT_EQ(rule.state().best_epoch, 2);
  EXPECT_EQ(rule.state().best, 1);
  EXPECT_EQ(rule.state().wait, 1);
  rule.reset();
  EXPECT_EQ(rule.state(), EarlyStoppingRule::State{});
}

TEST(EarlyStoppingRule, RefusesWhatMakesNoSense) {
  EXPECT_EQ(message_of<InvalidArgument>([] { EarlyStoppingRule({.patience = -1}); }),
            "early stopping: patience is -1: expected 0 or more");
  EXPECT_THROW(EarlyStoppingRule({.min_delta = -0.5}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::internal
