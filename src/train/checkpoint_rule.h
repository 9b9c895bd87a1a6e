#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/monitor_mode.h"

namespace tandem::internal {

struct BestCheckpointRuleOptions {
  std::string monitor = "val_loss";
  // kAuto: kMax for names that contain "acc" or begin with "fmeasure".
  MonitorMode mode = MonitorMode::kAuto;
  // What the first checkpoint must be better than.
  std::optional<double> initial_value_threshold = {};
};

// Which checkpoints Keras's ModelCheckpoint(save_best_only) saves.
class BestCheckpointRule {
 public:
  explicit BestCheckpointRule(BestCheckpointRuleOptions options = {});

  // Whether this value is better than all before, and so to be saved.
  bool improves(double value);

  // For a training that goes on later.
  std::optional<double> best() const { return best_; }
  void set_best(std::optional<double> best) { best_ = best; }

 private:
  bool greater_is_better_;
  std::optional<double> best_;
};

// After which batches ModelCheckpoint(save_freq=n) saves: counted over the epochs.
class EveryBatches {
 public:
  // Throws InvalidArgument if `n` is not 1 or more.
  explicit EveryBatches(std::int64_t n);

  // `batch` of this epoch, from 0, was the last one to end; some may have passed without a call. Whether to
  // save now.
  bool end_batch(std::int64_t batch);

 private:
  std::int64_t n_;
  std::int64_t last_batch_ = 0;
  std::int64_t since_saving_ = 0;
};

}  // namespace tandem::internal
