#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/model.h"

namespace tandem::examples {

// Watches a run and sums it up as DESIGN defines the figures.
class RunFigures : public Callback {
 public:
  void on_train_begin(const TrainingPlan& plan) override;
  void on_epoch_begin(std::int64_t epoch) override;
  void on_train_batch_end(const TrainStep& step, const Logs& logs) override;
  CallbackState state() const override;
  void load_state(const CallbackState& state) override;

  // Over all replicas; the first 10 steps (half, if fewer than 20) are left out.
  double images_per_second() const;
  // The mean over the last 100 steps, or fewer.
  double loss() const;

  // The file of --metrics_json, replaced atomically. `accuracy`: on the test set, if it was evaluated. With
  // several tasks a collective, for the digest.
  void write_json(const std::string& path, const Model& model, std::optional<double> accuracy) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Step {
    double seconds;
    double rows;
  };

  Clock::time_point last_;
  std::int64_t global_step_ = 0;  // also of a loop that the model does not count
  std::vector<Step> steps_;       // of this process
  std::vector<double> losses_;    // the newest, also of the process before a restart
  // By this task to the others.
  std::uint64_t bytes_before_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace tandem::examples
