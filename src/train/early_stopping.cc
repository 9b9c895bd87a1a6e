#include <utility>

#include "base/log.h"
#include "tandem/callbacks.h"
#include "tandem/model.h"
#include "train/early_stopping_rule.h"
#include "train/monitored_metric.h"

namespace tandem {
namespace internal {
namespace {

class EarlyStoppingCallback final : public Callback {
 public:
  explicit EarlyStoppingCallback(const EarlyStoppingOptions& options)
      : metric_("EarlyStopping", options.monitor),
        rule_({.monitor = options.monitor,
               .min_delta = options.min_delta,
               .patience = options.patience,
               .mode = options.mode,
               .baseline = options.baseline,
               .start_from_epoch = options.start_from_epoch}),
        restore_best_weights_(options.restore_best_weights),
        verbose_(options.verbose) {}

  void on_train_begin(const TrainingPlan&) override {
    metric_.on_train_begin();
    rule_.reset();
    best_.clear();
  }

  // The logs are the same on all tasks, and so is what is done here: reading and setting the model's values
  // takes all of them.
  void on_epoch_end(std::int64_t epoch, Logs& logs) override {
    const std::optional<double> value = metric_.in(logs, model());
    if (!value) return;
    const EarlyStoppingRule::Verdict verdict = rule_.end_epoch(epoch, *value);
    if (restore_best_weights_ && verdict.keep) best_ = model().values();
    if (!verdict.stop) return;
    model().stop_training();
    say("epoch {}: early stopping", epoch + 1);
    if (best_.empty()) return;
    say("the model gets back its values of the end of the best epoch, {}", *rule_.state().best_epoch + 1);
    model().set_values(best_);
  }

  CallbackState state() const override {
    const EarlyStoppingRule::State& rule = rule_.state();
    CallbackState state{.numbers = {{"wait", static_cast<double>(rule.wait)}}, .tensors = best_};
    if (rule.best) state.numbers["best"] = *rule.best;
    if (rule.best_epoch) state.numbers["best_epoch"] = static_cast<double>(*rule.best_epoch);
    return state;
  }

  void load_state(const CallbackState& state) override {
    rule_.set_state({.wait = static_cast<std::int64_t>(remembered(state, "wait").value_or(0)),
                     .best = remembered(state, "best"),
                     .best_epoch = remembered(state, "best_epoch")});
    best_ = restore_best_weights_ ? state.tensors : std::map<std::string, at::Tensor>();
  }

 private:
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (verbose_ && model().strategy().is_chief()) log_info(format, std::forward<Args>(args)...);
  }

  MonitoredMetric metric_;
  EarlyStoppingRule rule_;
  const bool restore_best_weights_;
  const bool verbose_;
  std::map<std::string, at::Tensor> best_;  // the model's values to go back to
};

}  // namespace
}  // namespace internal

std::shared_ptr<Callback> EarlyStopping(EarlyStoppingOptions options) {
  return std::make_shared<internal::EarlyStoppingCallback>(options);
}

}  // namespace tandem
