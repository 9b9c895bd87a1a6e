#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/monitor_mode.h"

namespace tandem::internal {

struct PlateauRuleOptions {
  std::string monitor = "val_loss";
  // What the learning rate is multiplied with: between 0 and 1.
  double factor = 0.1;
  // Epochs without improvement after which it is.
  std::int64_t patience = 10;
  // kAuto: kMax for names that contain "acc".
  MonitorMode mode = MonitorMode::kAuto;
  // A change by no more than this is no improvement.
  double min_delta = 1e-4;
  // Epochs after a reduction that do not count.
  std::int64_t cooldown = 0;
  // The rate never falls below.
  double min_learning_rate = 0;
};

// When Keras's ReduceLROnPlateau reduces the learning rate, and to what.
class PlateauRule {
 public:
  // All that it remembers, for a training that goes on later.
  struct State {
    std::int64_t wait = 0;
    std::int64_t cooldown = 0;  // epochs of it that are left
    std::optional<double> best = {};

    friend bool operator==(const State&, const State&) = default;
  };

  // Throws InvalidArgument for a factor that is not between 0 and 1, and for negative numbers.
  explicit PlateauRule(PlateauRuleOptions options = {});

  // Once per epoch, with the monitored value; not for an epoch that has none. The new learning rate, if it is
  // to change.
  std::optional<double> end_epoch(double value, double learning_rate);

  // Keras begins anew with each fit().
  void reset() { state_ = {}; }
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  bool better(double value) const;

  PlateauRuleOptions options_;
  bool greater_is_better_;
  State state_;
};

}  // namespace tandem::internal
