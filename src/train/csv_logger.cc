#include <utility>

#include "tandem/callbacks.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "train/csv_log.h"
#include "train/monitored_metric.h"

namespace tandem {
namespace internal {
namespace {

class CSVLoggerCallback final : public Callback {
 public:
  explicit CSVLoggerCallback(CSVLoggerOptions options) : options_(std::move(options)) {}

  void on_train_begin(const TrainingPlan& plan) override {
    log_.reset();
    resume_at_.reset();
    last_epoch_.reset();
    first_epoch_ = plan.initial_epoch;
  }

  // Only now is it known whether the training goes on.
  void on_epoch_begin(std::int64_t) override {
    if (log_ || !model().strategy().is_chief()) return;
    log_.emplace(
        options_.filename,
        CsvLogOptions{.separator = options_.separator, .append = options_.append, .resume_at = resume_at_});
  }

  void on_epoch_end(std::int64_t epoch, Logs& logs) override {
    if (!log_) return;
    size_before_last_ = log_->size();
    last_epoch_ = epoch;
    log_->add_epoch(epoch, {logs.begin(), logs.end()});
  }

  CallbackState state() const override {
    CallbackState state{.numbers = {{"size", log_ ? static_cast<double>(log_->size()) : 0}}};
    if (last_epoch_) {
      state.numbers["last_epoch"] = static_cast<double>(*last_epoch_);
      state.numbers["size_before_last"] = static_cast<double>(size_before_last_);
    }
    return state;
  }

  void load_state(const CallbackState& state) override {
    // An epoch that max_steps cut short has its line already, and gets another one when it really ends.
    const bool again = remembered(state, "last_epoch") == static_cast<double>(first_epoch_);
    const auto size = remembered(state, again ? "size_before_last" : "size");
    if (size) resume_at_ = static_cast<std::uint64_t>(*size);
  }

 private:
  const CSVLoggerOptions options_;
  std::optional<CsvLog> log_;  // on the chief, from the first epoch on
  std::optional<std::uint64_t> resume_at_;
  std::int64_t first_epoch_ = 0;
  std::optional<std::int64_t> last_epoch_;  // that has a line
  std::uint64_t size_before_last_ = 0;
};

}  // namespace
}  // namespace internal

std::shared_ptr<Callback> CSVLogger(CSVLoggerOptions options) {
  if (options.filename.empty()) throw InvalidArgument("CSVLogger: the filename is empty");
  if (options.separator.empty()) {
    throw InvalidArgument("CSVLogger: the separator is empty: expected a character");
  }
  return std::make_shared<internal::CSVLoggerCallback>(std::move(options));
}

}  // namespace tandem
