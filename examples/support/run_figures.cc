#include "support/run_figures.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace tandem::examples {
namespace {

constexpr std::size_t kWarmUpSteps = 10;
constexpr std::size_t kLossSteps = 100;

}  // namespace

void RunFigures::on_train_begin(const TrainingPlan&) {
  if (const Communicator* communicator = model().strategy().communicator()) {
    bytes_before_ = communicator->traffic().bytes_sent;
  }
}

// Validation happens between epochs and does not count.
void RunFigures::on_epoch_begin(std::int64_t) {
  last_ = Clock::now();
}

void RunFigures::on_train_batch_end(const TrainStep& step, const Logs&) {
  const auto now = Clock::now();
  steps_.push_back(
      {std::chrono::duration<double>(now - last_).count(), static_cast<double>(step.rows), step.loss});
  last_ = now;
  if (const Communicator* communicator = model().strategy().communicator()) {
    bytes_sent_ = communicator->traffic().bytes_sent - bytes_before_;
  }
}

double RunFigures::images_per_second() const {
  double seconds = 0;
  double rows = 0;
  for (std::size_t i = std::min(kWarmUpSteps, steps_.size() / 2); i < steps_.size(); ++i) {
    seconds += steps_[i].seconds;
    rows += steps_[i].rows;
  }
  return seconds > 0 ? rows / seconds : 0;
}

double RunFigures::loss() const {
  const std::size_t count = std::min(kLossSteps, steps_.size());
  double sum = 0;
  for (std::size_t i = steps_.size() - count; i < steps_.size(); ++i) sum += steps_[i].loss;
  return count ? sum / static_cast<double>(count) : 0;
}

void RunFigures::write_json(const std::string& path, const Model& model,
                            std::optional<double> accuracy) const {
  nlohmann::ordered_json figures;
  figures["images_per_second"] = images_per_second();
  figures["loss"] = loss();
  if (accuracy) figures["accuracy"] = *accuracy;
  figures["steps"] = steps_.size();
  figures["replicas"] = model.strategy().num_replicas_in_sync();
  figures["strategy"] = model.strategy().name();
  figures["threads_per_replica"] = model.strategy().threads_per_replica();
  figures["seed"] = model.seed();
  if (const Communicator* communicator = model.strategy().communicator(); communicator && !steps_.empty()) {
    figures["bytes_sent_per_step"] = bytes_sent_ / steps_.size();
  }
  figures["parameter_digest"] = model.parameter_digest();
  internal::replace_file(path, figures.dump(2) + "\n");
}

}  // namespace tandem::examples
