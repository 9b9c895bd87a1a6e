#include "tandem/callbacks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "tandem/error.h"
#include "tandem/model.h"

namespace tandem {

void Logs::set(const std::string& name, double value) {
  const auto found = std::ranges::find(values_, name, &std::pair<std::string, double>::first);
  if (found == values_.end()) {
    values_.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

bool Logs::has(const std::string& name) const {
  return std::ranges::find(values_, name, &std::pair<std::string, double>::first) != values_.end();
}

double Logs::at(const std::string& name) const {
  const auto found = std::ranges::find(values_, name, &std::pair<std::string, double>::first);
  if (found == values_.end()) {
    throw NotFound(fmt::format(
        "the logs have no \"{}\"; there are: {}", name,
        values_.empty() ? "none" : fmt::format("{}", fmt::join(values_ | std::views::keys, ", "))));
  }
  return found->second;
}

namespace {

class LearningRateScheduler final : public Callback {
 public:
  using Schedule = std::function<double(std::int64_t, double)>;

  explicit LearningRateScheduler(Schedule schedule) : schedule_(std::move(schedule)) {}

  void on_epoch_begin(std::int64_t epoch) override {
    const double rate = schedule_(epoch, model().optimizer().learning_rate());
    if (!(rate >= 0) || std::isinf(rate)) {
      throw InvalidArgument(fmt::format(
          "the schedule gives a learning rate of {} for epoch {}: expected a finite number, 0 or above", rate,
          epoch));
    }
    model().optimizer().set_learning_rate(rate);
  }

  void on_epoch_end(std::int64_t, Logs& logs) override {
    logs.set("lr", model().optimizer().learning_rate());
  }

 private:
  Schedule schedule_;
};

}  // namespace

std::shared_ptr<Callback> learning_rate_scheduler(std::function<double(std::int64_t, double)> schedule) {
  if (!schedule) throw InvalidArgument("learning_rate_scheduler: the schedule is empty: expected a function");
  return std::make_shared<LearningRateScheduler>(std::move(schedule));
}

}  // namespace tandem
