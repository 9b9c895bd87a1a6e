#include "train/progress_bar.h"

#include <chrono>
#include <iostream>
#include <limits>
#include <utility>

#include "train/progress_format.h"

namespace tandem {
namespace internal {
namespace {

class ProgressBar final : public Callback {
 public:
  ProgressBar(ProgressBarOptions options, std::function<double()> now)
      : options_(options), out_(options.out ? *options.out : std::cout), now_(std::move(now)) {}

  void on_train_begin(const TrainingPlan& plan) override { plan_ = plan; }

  void on_epoch_begin(std::int64_t epoch) override {
    epoch_ = {.start = now_()};
    if (plan_.epochs > 1) out_ << "Epoch " << epoch + 1 << '/' << plan_.epochs << '\n' << std::flush;
  }

  void on_train_batch_end(const TrainStep& step, const Logs& logs) override {
    const double now = now_();
    if (epoch_.steps == 0) {
      epoch_.first_end = now;
      epoch_.first_steps = step.step + 1;
    }
    epoch_.last_end = now;
    epoch_.steps = step.step + 1;
    if (options_.redraw && now - epoch_.drawn >= options_.interval) {
      draw(bar_line(progress(now), logs));
      epoch_.drawn = now;
    }
  }

  void on_epoch_end(std::int64_t, Logs& logs) override {
    // A dataset of unknown length is known now, for this line and the epochs to come.
    if (plan_.steps_per_epoch < 0) plan_.steps_per_epoch = epoch_.steps;
    Progress done = progress(now_());
    done.finished = true;
    if (options_.redraw) {
      draw(bar_line(done, logs));
    } else {
      out_ << epoch_line(done, logs);
    }
    out_ << '\n' << std::flush;
  }

 private:
  struct Epoch {
    double start = 0;
    std::int64_t steps = 0;  // that have ended
    double last_end = 0;     // when the last of them did
    std::int64_t first_steps = 0;
    double first_end = 0;
    double drawn = -std::numeric_limits<double>::infinity();
    std::size_t width = 0;  // of the line that stands there
  };

  Progress progress(double now) const {
    Progress progress{.steps = epoch_.steps, .total = plan_.steps_per_epoch, .seconds = now - epoch_.start};
    if (epoch_.steps > epoch_.first_steps) {
      progress.seconds_per_step =
          (epoch_.last_end - epoch_.first_end) / static_cast<double>(epoch_.steps - epoch_.first_steps);
    } else if (epoch_.steps > 0) {
      progress.seconds_per_step = (epoch_.last_end - epoch_.start) / static_cast<double>(epoch_.steps);
    }
    return progress;
  }

  // Over the line that stands there, with blanks over what is left of a longer one.
  void draw(std::string line) {
    const std::size_t width = line.size();
    if (width < epoch_.width) line.resize(epoch_.width, ' ');
    epoch_.width = width;
    out_ << '\r' << line << std::flush;
  }

  ProgressBarOptions options_;
  std::ostream& out_;
  std::function<double()> now_;
  TrainingPlan plan_;
  Epoch epoch_;
};

}  // namespace

std::shared_ptr<Callback> progress_bar_with_clock(ProgressBarOptions options, std::function<double()> now) {
  return std::make_shared<ProgressBar>(options, std::move(now));
}

}  // namespace internal

std::shared_ptr<Callback> progress_bar(ProgressBarOptions options) {
  return internal::progress_bar_with_clock(options, [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  });
}

}  // namespace tandem
