#include "tandem/tensor_board.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "tandem/error.h"
#include "tandem/model.h"
#include "train/monitored_metric.h"

namespace tandem {
namespace internal {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// "fc.weight" as "fc/weight/histogram": TensorBoard groups by what comes before the first slash.
std::string histogram_tag(std::string name) {
  std::ranges::replace(name, '.', '/');
  return name + "/histogram";
}

template <typename Number>
std::span<const Number> values_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<Number>(), static_cast<std::size_t>(tensor.numel())};
}

void write_histogram(SummaryWriter& writer, const std::string& name, std::int64_t step,
                     const at::Tensor& value) {
  if (!value.is_floating_point()) return;  // a counter
  if (value.scalar_type() == at::kDouble) {
    writer.histogram(histogram_tag(name), step, values_of<double>(value));
  } else {
    writer.histogram(histogram_tag(name), step, values_of<float>(value.to(at::kFloat)));
  }
}

class TensorBoardCallback final : public Callback {
 public:
  explicit TensorBoardCallback(TensorBoardOptions options) : options_(std::move(options)) {}

  void on_train_begin(const TrainingPlan& plan) override {
    close();
    first_epoch_ = plan.initial_epoch;
    resumed_at_.reset();
    last_step_ = model().global_step();
  }

  // The writers are opened later: only after this is it known whether the training goes on.
  void load_state(const CallbackState& state) override {
    if (const auto step = remembered(state, "global_step")) {
      resumed_at_ = static_cast<std::int64_t>(*step);
    }
  }

  // Not only to be told of a restart: what a checkpoint has behind it is in the files when it is made, so
  // that a kill in the next moment does not cost it.
  CallbackState state() const override {
    for (SummaryWriter writer : {train_, validation_, trial_}) {
      if (writer) writer.flush(std::chrono::seconds(1));
    }
    return {.numbers = {{"global_step", static_cast<double>(model().global_step())}}};
  }

  void on_epoch_begin(std::int64_t) override {
    if (!options_.hparams.empty() && !trial_) {
      open(trial_, "", {});
      trial_.hparams(options_.hparams);
    }
    epoch_ = {};
  }

  void on_train_batch_begin(std::int64_t) override { step_start_ = Clock::now(); }

  void on_train_batch_end(const TrainStep& step, const Logs& logs) override {
    const double seconds = seconds_since(step_start_);
    const std::int64_t steps = step.global_step - last_step_;
    epoch_.steps += steps;
    epoch_.seconds = seconds_since(epoch_.start);
    // With several steps per call, the first call after so many.
    const bool due = options_.update_freq > 0 &&
                     step.global_step / options_.update_freq > last_step_ / options_.update_freq;
    last_step_ = step.global_step;
    if (!due) return;
    open_train();
    if (options_.write_steps_per_second) {
      train_.scalar("batch_steps_per_second", step.global_step, static_cast<double>(steps) / seconds);
    }
    for (const auto& [name, value] : logs) train_.scalar("batch_" + name, step.global_step, value);
  }

  void on_epoch_end(std::int64_t epoch, Logs& logs) override {
    open_train();
    for (const auto& [name, value] : logs) {
      if (!name.starts_with("val_")) {
        train_.scalar("epoch_" + name, epoch, value);
        continue;
      }
      // There may never be one.
      if (!validation_) open(validation_, "/validation", next_step());
      const std::string metric = name.substr(4);
      validation_.scalar("evaluation_" + metric + "_vs_iterations", model().global_step(), value);
      validation_.scalar("epoch_" + metric, epoch, value);
    }
    train_.scalar("epoch_learning_rate", epoch, model().optimizer().learning_rate());
    if (options_.write_steps_per_second && epoch_.steps > 0) {
      train_.scalar("epoch_steps_per_second", epoch, static_cast<double>(epoch_.steps) / epoch_.seconds);
    }
    if (options_.histogram_freq > 0 && epoch % options_.histogram_freq == 0) {
      // All tasks, for the buffers are the mean over all replicas.
      for (const auto& [name, value] : model().values()) write_histogram(train_, name, epoch, value);
    }
  }

  void on_train_end(const Logs&) override {
    trial_.end_hparams(TrialStatus::kSuccess);
    close();
  }

 private:
  struct Epoch {
    Clock::time_point start = Clock::now();
    std::int64_t steps = 0;  // that were taken by this process
    double seconds = 0;      // until the last of them ended
  };

  void open(SummaryWriter& writer, const char* run, std::optional<std::int64_t> purge_step) {
    if (!model().strategy().is_chief()) return;  // one that writes nothing will do
    writer = SummaryWriter(options_.log_dir + run, {.purge_step = purge_step});
  }

  // What comes from here on is hidden, whatever it counts. In a run with curves over epochs and over steps
  // those over steps decide: the number of an epoch would hide nearly all of them.
  void open_train() {
    if (train_) return;
    const auto first_epoch = resumed_at_ ? std::optional(first_epoch_) : std::nullopt;
    open(train_, "/train", options_.update_freq > 0 ? next_step() : first_epoch);
  }
  std::optional<std::int64_t> next_step() const {
    return resumed_at_ ? std::optional(*resumed_at_ + 1) : std::nullopt;
  }

  void close() { train_ = validation_ = trial_ = SummaryWriter(); }

  const TensorBoardOptions options_;
  SummaryWriter train_;
  SummaryWriter validation_;
  SummaryWriter trial_;
  std::int64_t first_epoch_ = 0;
  std::optional<std::int64_t> resumed_at_;  // steps that were done then
  std::int64_t last_step_ = 0;
  Epoch epoch_;
  Clock::time_point step_start_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<Callback> TensorBoard(TensorBoardOptions options) {
  if (options.log_dir.empty()) throw InvalidArgument("TensorBoard: log_dir is empty: expected a folder");
  for (const auto& [name, value] :
       {std::pair("histogram_freq", options.histogram_freq), std::pair("update_freq", options.update_freq)}) {
    if (value < 0)
      throw InvalidArgument(fmt::format("TensorBoard: {} is {}: expected 0 or more", name, value));
  }
  return std::make_shared<internal::TensorBoardCallback>(std::move(options));
}

}  // namespace tandem
