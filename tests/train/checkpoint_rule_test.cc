#include "train/checkpoint_rule.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::vector<bool> saved(BestCheckpointRule rule, const std::vector<double>& values) {
  std::vector<bool> out;
  for (const double value : values) out.push_back(rule.improves(value));
  return out;
}

using Saved = std::vector<bool>;

TEST(BestCheckpointRule, SavesWhatIsBetterThanAllBefore) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(saved(BestCheckpointRule(), {3, 3, 2, nan, 2.5, 1}),
            (Saved{true, false, true, false, false, true}));
}

TEST(BestCheckpointRule, TellsFromTheNameWhatIsBetter) {
  for (const char* name : {"val_acc", "accuracy_of_all", "fmeasure_2"}) {
    EXPECT_EQ(saved(BestCheckpointRule({.monitor = name}), {1, 2, 1.5}), (Saved{true, true, false})) << name;
  }
  for (const char* name : {"val_loss", "val_auc", "val_fmeasure"}) {
    EXPECT_EQ(saved(BestCheckpointRule({.monitor = name}), {1, 2, 0.5}), (Saved{true, false, true})) << name;
  }
  EXPECT_EQ(saved(BestCheckpointRule({.mode = MonitorMode::kMax}), {1, 2}), (Saved{true, true}));
}

TEST(BestCheckpointRule, BeginsAtAThreshold) {
  EXPECT_EQ(saved(BestCheckpointRule({.initial_value_threshold = 0.5}), {0.7, 0.5, 0.4}),
            (Saved{false, false, true}));
}

TEST(BestCheckpointRule, GoesOnFromTheBestSoFar) {
  BestCheckpointRule rule;
  EXPECT_FALSE(rule.best());
  rule.improves(0.25);
  BestCheckpointRule resumed;
  resumed.set_best(rule.best());
  EXPECT_FALSE(resumed.improves(0.25));
}

std::vector<std::int64_t> batches_saved(std::int64_t n, std::int64_t per_epoch, std::int64_t step = 1) {
  EveryBatches every(n);
  std::vector<std::int64_t> out;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t batch = step - 1; batch < per_epoch; batch += step) {
      if (every.end_batch(batch)) out.push_back(epoch * per_epoch + batch);
    }
  }
  return out;
}

using Batches = std::vector<std::int64_t>;

TEST(EveryBatches, CountsOverTheEpochs) {
  EXPECT_EQ(batches_saved(1, 2), (Batches{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(batches_saved(4, 5), (Batches{3, 7, 11}));
  EXPECT_EQ(batches_saved(7, 5), (Batches{6, 13}));
  EXPECT_EQ(batches_saved(3, 4, 2), (Batches{3, 7, 11}));  // called after every second batch only
}

TEST(EveryBatches, RefusesNone) {
  EXPECT_THROW(EveryBatches(0), InvalidArgument);
}

}  // namespace
}  // namespace tandem::internal
