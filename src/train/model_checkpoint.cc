#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "tandem/checkpoint.h"
#include "tandem/error.h"
#include "train/checkpoint_name.h"
#include "train/checkpoint_rule.h"
#include "train/monitored_metric.h"

namespace tandem {
namespace {

class ModelCheckpointCallback final : public Callback {
 public:
  explicit ModelCheckpointCallback(ModelCheckpointOptions options)
      : options_(std::move(options)),
        metric_("ModelCheckpoint", options_.monitor),
        best_({.monitor = options_.monitor,
               .mode = options_.mode,
               .initial_value_threshold = options_.initial_value_threshold}) {
    if (options_.filepath.empty()) {
      throw InvalidArgument("ModelCheckpoint: filepath is empty: expected the path of a file");
    }
    if (options_.save_freq) every_.emplace(*options_.save_freq);
  }

  void on_train_begin(const TrainingPlan&) override { metric_.on_train_begin(); }

  void on_train_batch_end(const TrainStep& step, const Logs& logs) override {
    if (every_ && every_->end_batch(step.step)) save({.epoch = step.epoch, .batch = step.step}, logs);
  }

  void on_epoch_end(std::int64_t epoch, Logs& logs) override {
    if (!every_) save({.epoch = epoch}, logs);
  }

  CallbackState state() const override {
    CallbackState state;
    if (best_.best()) state.numbers["best"] = *best_.best();
    return state;
  }

  void load_state(const CallbackState& state) override {
    if (const auto best = internal::remembered(state, "best")) best_.set_best(*best);
  }

 private:
  // Every task comes here alike; the logs are the same on all.
  void save(const internal::CheckpointMoment& moment, const Logs& logs) {
    if (options_.save_best_only) {
      const std::optional<double> value = metric_.in(logs, model());
      if (!value || !best_.improves(*value)) return;
    }
    const std::string path = internal::checkpoint_name(
        options_.filepath, moment, std::vector<std::pair<std::string, double>>(logs.begin(), logs.end()));
    if (model().strategy().is_chief()) {
      std::error_code ignored;  // writing says it better
      std::filesystem::create_directories(std::filesystem::absolute(path).parent_path(), ignored);
    }
    if (options_.save_weights_only) {
      model().save_weights(path);
    } else {
      model().save(path);
    }
  }

  ModelCheckpointOptions options_;
  internal::MonitoredMetric metric_;
  internal::BestCheckpointRule best_;
  std::optional<internal::EveryBatches> every_;
};

}  // namespace

std::shared_ptr<Callback> ModelCheckpoint(ModelCheckpointOptions options) {
  return std::make_shared<ModelCheckpointCallback>(std::move(options));
}

}  // namespace tandem
