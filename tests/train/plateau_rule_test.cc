#include "train/plateau_rule.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/errors.h"
#include "support/oracle.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;

// The learning rate after each epoch.
std::vector<double> rates(const PlateauRuleOptions& options, const std::vector<double>& values, double rate) {
  PlateauRule rule(options);
  std::vector<double> out;
  for (const double value : values) {
    rate = rule.end_epoch(value, rate).value_or(rate);
    out.push_back(rate);
  }
  return out;
}

PlateauRuleOptions options_of(const nlohmann::json& plateau) {
  return {.factor = plateau.at("factor"),
          .patience = plateau.at("patience"),
          .min_delta = plateau.at("min_delta"),
          .cooldown = plateau.at("cooldown")};
}

TEST(PlateauRule, ReducesWhenKerasDoes) {
  const auto cases = testing_support::read_oracle("callbacks");
  ASSERT_EQ(cases.size(), 15u);
  for (const auto& c : cases) {
    const auto& plateau = c.at("plateau");
    const std::vector<double> expected = plateau.at("learning_rates");
    EXPECT_EQ(rates(options_of(plateau), c.at("val_loss"), 0.1F), expected);
  }
}

TEST(PlateauRule, GoesOnFromItsState) {
  for (const auto& c : testing_support::read_oracle("callbacks")) {
    const PlateauRuleOptions options = options_of(c.at("plateau"));
    const std::vector<double> values = c.at("val_loss");
    PlateauRule::State saved;
    double rate = 0.1F;
    std::vector<double> got;
    for (const double value : values) {
      PlateauRule resumed(options);  // killed after every epoch
      resumed.set_state(saved);
      rate = resumed.end_epoch(value, rate).value_or(rate);
      got.push_back(rate);
      saved = resumed.state();
    }
    EXPECT_EQ(got, rates(options, values, 0.1F));
  }
}

TEST(PlateauRule, StopsAtTheSmallestRate) {
  EXPECT_EQ(rates({.factor = 0.5, .patience = 1, .min_learning_rate = 0.3}, {1, 1, 1, 1}, 1),
            (std::vector<double>{1, 0.5, 0.3, 0.3}));
}

TEST(PlateauRule, TellsFromTheNameWhatIsBetter) {
  const std::vector<double> rising{0.1, 0.2, 0.3};
  const std::vector<double> kept{1, 1, 1};
  const std::vector<double> reduced{1, 0.5, 0.25};
  EXPECT_EQ(rates({.monitor = "accuracy_of_all", .factor = 0.5, .patience = 1}, rising, 1), kept);
  EXPECT_EQ(rates({.factor = 0.5, .patience = 1, .mode = MonitorMode::kMax}, rising, 1), kept);
  EXPECT_EQ(rates({.monitor = "val_auc", .factor = 0.5, .patience = 1}, rising, 1), reduced);
}

TEST(PlateauRule, BeginsAnew) {
  PlateauRule rule({.patience = 2});
  rule.end_epoch(1, 1);
  rule.end_epoch(2, 1);
  EXPECT_EQ(rule.state().wait, 1);
  rule.reset();
  EXPECT_EQ(rule.state(), PlateauRule::State{});
}

TEST(PlateauRule, RefusesWhatMakesNoSense) {
  EXPECT_EQ(message_of<InvalidArgument>([] { PlateauRule({.factor = 1}); }),
            "reduce on plateau: factor is 1: expected more than 0 and less than 1");
  EXPECT_EQ(message_of<InvalidArgument>([] { PlateauRule({.cooldown = -2}); }),
            "reduce on plateau: cooldown is -2: expected 0 or more");
}

}  // namespace
}  // namespace tandem::internal
