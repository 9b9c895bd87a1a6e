#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "base/log.h"
#include "tandem/checkpoint.h"
#include "tandem/error.h"
#include "train/model_state.h"
#include "train/preemption.h"

namespace tandem {

class BackupAndRestoreCallback final : public Callback {
 public:
  explicit BackupAndRestoreCallback(BackupAndRestoreOptions options) : options_(std::move(options)) {
    if (options_.backup_dir.empty()) {
      throw InvalidArgument("BackupAndRestore: backup_dir is empty: expected the path of a folder");
    }
    if (options_.save_freq && *options_.save_freq < 1) {
      throw InvalidArgument(
          fmt::format("BackupAndRestore: save_freq is {}: expected 1 or more", *options_.save_freq));
    }
  }

  void on_restore() override {
    checkpoints_.emplace(model(), options_.backup_dir, options_.checkpoints);
    if (options_.save_before_preemption) watch_.emplace();
    at_.reset();
    saved_.reset();
    if (const auto restored = checkpoints_->restore()) {
      const auto& resume = internal::ModelAccess::state(model()).resume;
      if (resume) saved_ = Place{resume->progress.epoch, resume->progress.step};
      if (model().strategy().is_chief()) {
        internal::log_info(
            "going on after step {}{}, from {}", restored->global_step,
            resume ? fmt::format(" (epoch {}, step {})", resume->progress.epoch + 1, resume->progress.step)
                   : "",
            restored->path);
      }
    }
    saved_step_ = model().global_step();
    last_save_ = Clock::now();
  }

  void on_train_batch_end(const TrainStep&, const Logs&) override {
    // Clocks differ: the chief's counts, and request_save() takes it to all.
    if (options_.save_interval.count() > 0 && model().strategy().is_chief() &&
        Clock::now() - last_save_ >= options_.save_interval) {
      model().request_save();
    }
  }

  void on_resumable(const ResumePoint& point) override {
    at_ = Place{point.epoch, point.step};
    const bool due = options_.save_freq
                         ? point.global_step / *options_.save_freq != saved_step_ / *options_.save_freq
                         : point.step == 0;
    if (due || point.save_requested || point.preempted) save(point.global_step);
    if (point.preempted) checkpoints_->wait();
  }

  void on_train_end(const Logs&) override {
    if (options_.delete_checkpoint) {
      checkpoints_->remove_all();
    } else if (at_ && at_ != saved_) {
      save(model().global_step());
    }
    checkpoints_->wait();
    watch_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    std::int64_t epoch = 0;
    std::int64_t step = 0;

    friend bool operator==(const Place&, const Place&) = default;
  };

  void save(std::int64_t global_step) {
    checkpoints_->save_async();
    saved_ = at_;
    saved_step_ = global_step;
    last_save_ = Clock::now();
  }

  BackupAndRestoreOptions options_;
  std::optional<CheckpointManager> checkpoints_;
  std::optional<internal::PreemptionWatch> watch_;
  std::optional<Place> at_;     // where the training stands
  std::optional<Place> saved_;  // what the newest checkpoint holds
  std::int64_t saved_step_ = 0;
  Clock::time_point last_save_;
};

std::shared_ptr<Callback> BackupAndRestore(BackupAndRestoreOptions options) {
  return std::make_shared<BackupAndRestoreCallback>(std::move(options));
}

}  // namespace tandem
