#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/monitor_mode.h"

namespace tandem::internal {

struct EarlyStoppingRuleOptions {
  std::string monitor = "val_loss";
  // A change by no more than this is no improvement.
  double min_delta = 0;
  // Epochs without improvement after which training stops.
  std::int64_t patience = 0;
  // kAuto: kMax for names that end in "acc", "accuracy" or "auc".
  MonitorMode mode = MonitorMode::kAuto;
  // What must be reached, and not only improved towards, for the patience to begin anew.
  std::optional<double> baseline = {};
  // Epochs before this one, counted from 0, do not count.
  std::int64_t start_from_epoch = 0;
};

// When Keras's EarlyStopping stops. All tasks that give it the same values get the same answers.
class EarlyStoppingRule {
 public:
  struct Verdict {
    // The parameters of now are those to return to at the end: the best so far, or the first that count.
    bool keep = false;
    bool stop = false;
  };

  // All that it remembers, for a training that goes on later.
  struct State {
    std::int64_t wait = 0;
    std::optional<double> best = {};  // nothing was good enough yet
    std::optional<std::int64_t> best_epoch = {};

    friend bool operator==(const State&, const State&) = default;
  };

  // Throws InvalidArgument for a negative patience, or a min_delta that is negative or no number.
  explicit EarlyStoppingRule(EarlyStoppingRuleOptions options = {});

  // Once per epoch, with the monitored value; not for an epoch that has none. A value that is no number is no
  // improvement.
  Verdict end_epoch(std::int64_t epoch, double value);

  // Keras begins anew with each fit().
  void reset() { state_ = {}; }
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  bool better(double value, const std::optional<double>& than) const;

  EarlyStoppingRuleOptions options_;
  bool greater_is_better_;
  State state_;
};

}  // namespace tandem::internal
