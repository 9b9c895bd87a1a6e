#include "train/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

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

  void on_epoch_begin(std::int64_t epoch) override { begin(epoch, 0); }
  void on_epoch_resume(std::int64_t epoch, std::int64_t step) override { begin(epoch, step); }

  void on_train_batch_end(const TrainStep& step, const Logs& logs) override {
    const double now = now_();
    if (epoch_.steps == epoch_.before) {
      epoch_.first_end = now;
      epoch_.first_steps = step.step + 1;
    }
    epoch_.last_end = now;
    epoch_.steps = step.step + 1;
    if (options_.redraw) {
      if (now - epoch_.shown < options_.interval) return;
      draw(bar_line(progress(now), logs), Cut::kToTheTerminal);
    } else {
      const bool is_last = epoch_.steps == plan_.steps_per_epoch;  // which gets a line of its own
      if (options_.line_interval <= 0 || is_last || now - epoch_.shown < options_.line_interval) return;
      out_ << bar_line(progress(now), logs) << '\n' << std::flush;
    }
    epoch_.shown = now;
  }

  void on_epoch_end(std::int64_t, Logs& logs) override {
    // A dataset of unknown length is known now, for this line and the epochs to come.
    if (plan_.steps_per_epoch < 0) plan_.steps_per_epoch = epoch_.steps;
    Progress done = progress(now_());
    done.finished = true;
    if (options_.redraw) {
      draw(bar_line(done, logs), Cut::kNot);
    } else {
      out_ << epoch_line(done, logs);
    }
    end_line();
  }

  // An epoch that was left in its middle has a bar that waits for more.
  void on_train_end(const Logs&) override {
    if (epoch_.width > 0) end_line();
  }

 private:
  enum class Cut { kNot, kToTheTerminal };

  struct Epoch {
    double start = 0;
    std::int64_t before = 0;  // steps that were done when it started, or started again
    std::int64_t steps = 0;   // that have ended, with those
    double last_end = 0;      // when the last of them did
    std::int64_t first_steps = 0;
    double first_end = 0;
    double shown = 0;       // when something last was
    std::size_t width = 0;  // of the line that stands there
  };

  void begin(std::int64_t epoch, std::int64_t step) {
    const double now = now_();
    epoch_ = {.start = now,
              .before = step,
              .steps = step,
              // The first bar comes with the first step, the first plain line when it has been long enough.
              .shown = options_.redraw ? -std::numeric_limits<double>::infinity() : now};
    if (plan_.epochs > 1) out_ << "Epoch " << epoch + 1 << '/' << plan_.epochs << '\n' << std::flush;
  }

  Progress progress(double now) const {
    Progress progress{.steps = epoch_.steps, .total = plan_.steps_per_epoch, .seconds = now - epoch_.start};
    if (epoch_.steps > epoch_.first_steps && epoch_.first_steps > 0) {
      progress.seconds_per_step =
          (epoch_.last_end - epoch_.first_end) / static_cast<double>(epoch_.steps - epoch_.first_steps);
    } else if (epoch_.steps > epoch_.before) {
      progress.seconds_per_step =
          (epoch_.last_end - epoch_.start) / static_cast<double>(epoch_.steps - epoch_.before);
    }
    return progress;
  }

  // Over the line that stands there, with blanks over what is left of a longer one.
  void draw(std::string line, Cut cut) {
    const std::size_t width = line.size();
    if (width < epoch_.width) line.resize(epoch_.width, ' ');
    epoch_.width = width;
    if (const std::size_t most = columns(); cut == Cut::kToTheTerminal && most > 0) {
      line = cut_to(std::move(line), most - 1);  // the cursor needs one too
    }
    out_ << '\r' << line << std::flush;
  }

  void end_line() {
    epoch_.width = 0;
    out_ << '\n' << std::flush;
  }

  // Asked each time: windows change. 0 if it is not known.
  std::size_t columns() const {
    if (options_.columns > 0) return static_cast<std::size_t>(options_.columns);
    winsize window{};
    if (options_.out || ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return 0;
    return window.ws_col;
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
