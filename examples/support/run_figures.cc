#include "support/run_figures.h"

#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

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
  global_step_ = model().global_step();
}

void RunFigures::on_train_batch_end(const TrainStep& step, const Logs&) {
  const auto now = Clock::now();
  // Other workers of parameter servers have taken the steps in between, with as many rows each.
  const bool of_all = model().strategy().name() == "parameter_server" && model().strategy().is_chief();
  const auto steps = of_all ? static_cast<double>(step.global_step - global_step_) : 1.0;
  steps_.push_back(
      {std::chrono::duration<double>(now - last_).count(), steps * static_cast<double>(step.rows)});
  last_ = now;
  global_step_ = step.global_step;
  if (losses_.size() == kLossSteps) losses_.erase(losses_.begin());
  losses_.push_back(step.loss);
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
  const double sum = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  return losses_.empty() ? 0 : sum / static_cast<double>(losses_.size());
}

CallbackState RunFigures::state() const {
  return {.tensors = {{"losses", torch::tensor(losses_, torch::kDouble)}}};
}

void RunFigures::load_state(const CallbackState& state) {
  const at::Tensor& losses = state.tensors.at("losses");
  losses_.assign(losses.data_ptr<double>(), losses.data_ptr<double>() + losses.numel());
}

void RunFigures::write_json(const std::string& path, const Model& model,
                            std::optional<double> accuracy) const {
  nlohmann::ordered_json figures;
  figures["images_per_second"] = images_per_second();
  figures["loss"] = loss();
  if (accuracy) figures["accuracy"] = *accuracy;
  figures["steps"] = std::max(model.global_step(), global_step_);
  figures["dtype"] = model.policy().name();
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
