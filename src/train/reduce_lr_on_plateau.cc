#include "base/log.h"
#include "tandem/callbacks.h"
#include "tandem/model.h"
#include "train/monitored_metric.h"
#include "train/plateau_rule.h"
#include "train/python_float.h"

namespace tandem {
namespace internal {
namespace {

class ReduceLROnPlateauCallback final : public Callback {
 public:
  explicit ReduceLROnPlateauCallback(const ReduceLROnPlateauOptions& options)
      : metric_("ReduceLROnPlateau", options.monitor),
        rule_({.monitor = options.monitor,
               .factor = options.factor,
               .patience = options.patience,
               .mode = options.mode,
               .min_delta = options.min_delta,
               .cooldown = options.cooldown,
               .min_learning_rate = options.min_lr}),
        verbose_(options.verbose) {}

  void on_train_begin(const TrainingPlan&) override {
    metric_.on_train_begin();
    rule_.reset();
  }

  void on_epoch_end(std::int64_t epoch, Logs& logs) override {
    const double rate = model().optimizer().learning_rate();
    logs.set("lr", rate);
    const std::optional<double> value = metric_.in(logs, model());
    if (!value) return;
    const std::optional<double> reduced = rule_.end_epoch(*value, rate);
    if (!reduced) return;
    model().optimizer().set_learning_rate(*reduced);
    if (verbose_ && model().strategy().is_chief()) {
      log_info("epoch {}: the learning rate is reduced to {}", epoch + 1, python_float(*reduced));
    }
  }

  // The rate itself is part of the optimizer's.
  CallbackState state() const override {
    const PlateauRule::State& rule = rule_.state();
    CallbackState state{.numbers = {{"wait", static_cast<double>(rule.wait)},
                                    {"cooldown", static_cast<double>(rule.cooldown)}}};
    if (rule.best) state.numbers["best"] = *rule.best;
    return state;
  }

  void load_state(const CallbackState& state) override {
    rule_.set_state({.wait = static_cast<std::int64_t>(remembered(state, "wait").value_or(0)),
                     .cooldown = static_cast<std::int64_t>(remembered(state, "cooldown").value_or(0)),
                     .best = remembered(state, "best")});
  }

 private:
  MonitoredMetric metric_;
  PlateauRule rule_;
  const bool verbose_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<Callback> ReduceLROnPlateau(ReduceLROnPlateauOptions options) {
  return std::make_shared<internal::ReduceLROnPlateauCallback>(options);
}

}  // namespace tandem
