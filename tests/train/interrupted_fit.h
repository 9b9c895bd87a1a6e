#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <vector>

#include "support/training.h"
#include "tandem/tandem.h"
#include "train/model_state.h"

namespace tandem::testing_support {

using Callbacks = std::vector<std::shared_ptr<Callback>>;

// A moment of a fit(): as many steps of the epoch are done.
struct Moment {
  std::int64_t epoch = 0;
  std::int64_t step = 0;

  friend auto operator<=>(const Moment&, const Moment&) = default;
};

// What a checkpoint has of a training, in memory. For optimizers that have no state.
struct SavedFit {
  std::map<std::string, at::Tensor> values;
  double learning_rate = 0;
  std::int64_t global_step = 0;
  internal::Resume resume;
};

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

// Stands for the callback that saves and restores: saves at a moment, and ends the training at a later one.
class Interruption : public Callback {
 public:
  Interruption(Moment save, Moment kill, std::optional<SavedFit>& saved)
      : save_(save), kill_(kill), saved_(saved) {}

  void on_restore() override {
    if (!saved_) return;
    Model::State& state = internal::ModelAccess::state(model());
    model().set_values(saved_->values);
    model().optimizer().set_learning_rate(saved_->learning_rate);
    state.global_step = saved_->global_step;
    state.resume = saved_->resume;
    save_ = kill_ = {.epoch = -1};  // once is enough
  }

  void on_resumable(const ResumePoint& point) override {
    const Moment now{point.epoch, point.step};
    if (now == save_) save();
    if (now == kill_) throw Killed();
  }

 private:
  void save() {
    const internal::RunningFit& running = *internal::ModelAccess::state(model()).running;
    saved_ = SavedFit{.values = model().values(),
                      .learning_rate = model().optimizer().learning_rate(),
                      .global_step = model().global_step(),
                      .resume = {.progress = running.progress, .position = running.batches->position()}};
    for (const auto& callback : running.callbacks) saved_->resume.callbacks.push_back(callback->state());
  }

  Moment save_;
  Moment kill_;
  std::optional<SavedFit>& saved_;
};

inline Model linear(const Strategy& strategy, double rate = 0.1, std::int64_t steps_per_execution = 1) {
  return strategy.scope([&] {
    Model m([] { return torch::nn::Linear(2, 1); }, {.seed = 1});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = rate}),
               .loss = losses::mean_squared_error(),
               .steps_per_execution = steps_per_execution});
    return m;
  });
}

inline Dataset line(int rows) {  // y = 3 a - 2 b + 1
  torch::manual_seed(4);
  const at::Tensor x = torch::randn({rows, 2});
  return Dataset::from_tensors(x, x.matmul(torch::tensor({{3.f}, {-2.f}})) + 1);
}

// A training of 3 steps per epoch. Killed: it goes on with a model and callbacks that are new, from where it
// was saved.
struct Training {
  Strategy strategy;
  std::int64_t epochs = 6;
  std::optional<Dataset> validation_data = {};
  std::function<Callbacks()> callbacks;

  struct Result {
    History history;
    std::string digest;
    double learning_rate = 0;

    friend bool operator==(const Result& a, const Result& b) {
      return a.history.epoch == b.history.epoch && a.history.history == b.history.history &&
             a.history.steps == b.history.steps && a.digest == b.digest && a.learning_rate == b.learning_rate;
    }
  };

  Result whole() const { return fit(callbacks()); }

  Result killed(Moment save, Moment kill) const {
    std::optional<SavedFit> saved;
    for (const bool again : {false, true}) {
      Callbacks all = callbacks();
      all.push_back(std::make_shared<Interruption>(save, kill, saved));
      if (again) return fit(std::move(all));
      EXPECT_THROW(fit(std::move(all)), Killed);
      EXPECT_TRUE(saved.has_value());
    }
    return {};
  }

 private:
  Result fit(Callbacks all) const {
    Model model = linear(strategy);
    Result result;
    result.history = model.fit(line(24).shuffle(24).batch(8), {.epochs = epochs,
                                                               .validation_data = validation_data,
                                                               .callbacks = std::move(all),
                                                               .verbose = Verbose::kSilent});
    result.digest = model.parameter_digest();
    result.learning_rate = model.optimizer().learning_rate();
    return result;
  }
};

// Saved in the middle of an epoch, after its last step and at its end; killed at once and later.
inline const std::vector<std::pair<Moment, Moment>>& interruptions() {
  static const std::vector<std::pair<Moment, Moment>> all{
      {{0, 1}, {0, 1}}, {{0, 2}, {2, 1}}, {{1, 0}, {1, 0}}, {{1, 3}, {3, 2}},
      {{2, 0}, {4, 0}}, {{3, 1}, {3, 3}}, {{4, 0}, {4, 2}}};
  return all;
}

}  // namespace tandem::testing_support
