#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tandem/callbacks.h"
#include "tandem/error.h"
#include "tandem/model.h"

namespace tandem {
namespace internal {
namespace {

class LearningRateSchedulerCallback final : public Callback {
 public:
  using Schedule = std::function<double(std::int64_t, double)>;

  explicit LearningRateSchedulerCallback(Schedule schedule) : schedule_(std::move(schedule)) {}

  void on_epoch_begin(std::int64_t epoch) override {
    const double rate = schedule_(epoch, model().optimizer().learning_rate());
    if (!(rate >= 0) || std::isinf(rate)) {
      throw InvalidArgument(fmt::format(
          "the schedule gives a learning rate of {} for epoch {}: expected a finite number, 0 or above", rate,
          epoch));
    }
    model().optimizer().set_learning_rate(rate);
  }

  // The optimizer's rate is this epoch's already; the schedule may be one that halves it.
  void on_epoch_resume(std::int64_t, std::int64_t) override {}

  void on_epoch_end(std::int64_t, Logs& logs) override {
    logs.set("lr", model().optimizer().learning_rate());
  }

 private:
  const Schedule schedule_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<Callback> LearningRateScheduler(std::function<double(std::int64_t, double)> schedule) {
  if (!schedule) throw InvalidArgument("LearningRateScheduler: the schedule is empty: expected a function");
  return std::make_shared<internal::LearningRateSchedulerCallback>(std::move(schedule));
}

}  // namespace tandem
