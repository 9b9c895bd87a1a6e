// What TensorBoard can show of a training: curves, histograms, pictures, texts and hyper-parameters. A line
// is fitted to noisy points by gradient descent, once for each learning rate; no tensor, so that only the
// writing is left to see.
//
//   summaries --log_dir /tmp/logs
//   tensorboard --logdir /tmp/logs         # pip install tensorboard; TensorFlow is not needed
//
// prints a line for each trial:
//
//   rate_0.1: y = 1.89 x + 1.00, loss 0.091, 99 summaries in /tmp/logs/rate_0.1
//
// Again with --start_step 20, it replaces what the curves show from there on, as a training does that was
// killed and goes on from a checkpoint.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cli/program.h"
#include "tandem/summary.h"

namespace {

struct Flags {
  std::string log_dir = "logs";
  int steps = 40;
  int start_step = 0;
  bool simple_scalars = false;
  std::vector<double> learning_rates = {0.02, 0.1, 0.5};
};

struct Line {
  double slope = 0;
  double offset = 0;
};

struct Points {
  std::vector<double> x;
  std::vector<double> y;
};

// y = 2 x + 1 with noise.
Points some_points() {
  std::mt19937 random(1);
  Points points;
  for (int i = 0; i < 200; ++i) {
    const double noise = static_cast<double>(random()) / static_cast<double>(std::mt19937::max()) - 0.5;
    points.x.push_back(i / 100.0 - 1);
    points.y.push_back(2 * points.x.back() + 1 + noise);
  }
  return points;
}

std::vector<double> residuals(const Points& points, Line line) {
  std::vector<double> out;
  for (std::size_t i = 0; i < points.x.size(); ++i) {
    out.push_back(line.slope * points.x[i] + line.offset - points.y[i]);
  }
  return out;
}

// The points in grey and the line in red: x and y from -1 to 1 and from -2 to 4, 96 by 96 pixels.
class Picture {
 public:
  Picture(const Points& points, Line line) : pixels_(3 * kSize * kSize, 255) {
    for (std::size_t i = 0; i < points.x.size(); ++i) dot(points.x[i], points.y[i], {150, 150, 150});
    for (int i = 0; i < kSize; ++i) {
      const double x = 2.0 * i / kSize - 1;
      dot(x, line.slope * x + line.offset, {220, 30, 30});
    }
  }

  tandem::ImageView view() const {
    return {.pixels = pixels_.data(), .height = kSize, .width = kSize, .channels = 3};
  }

 private:
  static constexpr int kSize = 96;

  void dot(double x, double y, std::array<std::uint8_t, 3> colour) {
    const auto column = static_cast<int>(std::lround((x + 1) / 2 * (kSize - 1)));
    const auto row = static_cast<int>(std::lround((4 - y) / 6 * (kSize - 1)));
    if (column < 0 || column >= kSize || row < 0 || row >= kSize) return;
    for (std::size_t c = 0; c < 3; ++c)
      pixels_[static_cast<std::size_t>(3 * (row * kSize + column)) + c] = colour[c];
  }

  std::vector<std::uint8_t> pixels_;
};

void run_trial(const Flags& flags, const Points& points, double rate) {
  const std::string name = fmt::format("rate_{}", rate);
  tandem::SummaryWriterOptions options;
  if (flags.start_step > 0) options.purge_step = flags.start_step;
  if (flags.simple_scalars) options.scalar_form = tandem::ScalarForm::kSimpleValue;
  tandem::SummaryWriter writer(flags.log_dir + "/" + name, options);
  writer.hparams(
      {{"learning_rate", rate}, {"steps", flags.steps}, {"optimizer", "gradient descent"}, {"noisy", true}});
  writer.text("about", 0, fmt::format("A line fitted with a *learning rate* of **{}**.", rate));
  Line line;
  double loss = 0;
  for (int step = flags.start_step; step < flags.steps; ++step) {
    const std::vector<double> errors = residuals(points, line);
    const auto n = static_cast<double>(errors.size());
    loss = 0;
    Line gradient;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      loss += errors[i] * errors[i] / n;
      gradient.slope += 2 * errors[i] * points.x[i] / n;
      gradient.offset += 2 * errors[i] / n;
    }
    writer.scalar("loss", step, loss);
    writer.scalar("slope", step, line.slope);
    if (step % 5 == 0) {
      writer.histogram("residuals", step, errors);
      writer.image("fit", step, Picture(points, line).view());
    }
    line = {line.slope - rate * gradient.slope, line.offset - rate * gradient.offset};
  }
  writer.end_hparams(loss < 1 ? tandem::TrialStatus::kSuccess : tandem::TrialStatus::kFailure);
  writer.flush();
  fmt::print("{}: y = {:.2f} x + {:.2f}, loss {:.3f}, {} summaries in {}\n", name, line.slope, line.offset,
             loss, writer.counts().written, writer.folder());
}

void run(const Flags& flags) {
  // What the HPARAMS tab shows of the trials, which are the folders below.
  tandem::SummaryWriter experiment(flags.log_dir);
  std::vector<tandem::HParam> rates(flags.learning_rates.begin(), flags.learning_rates.end());
  experiment.hparams_config(
      {.hparams = {{.name = "learning_rate", .values = rates}, {.name = "steps", .values = {flags.steps}}},
       .metrics = {{.tag = "loss", .display_name = "final loss"}}});
  const Points points = some_points();
  for (const double rate : flags.learning_rates) run_trial(flags, points, rate);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes what TensorBoard can show", "summaries");
  Flags flags;
  app.add_option("--log_dir", flags.log_dir, "Where the runs are written")->capture_default_str();
  app.add_option("--steps", flags.steps, "Steps of each trial")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--start_step", flags.start_step, "The first step")->capture_default_str();
  app.add_flag("--simple_scalars", flags.simple_scalars, "Scalars in the form of TensorFlow 1 and PyTorch");
  app.add_option("--learning_rates", flags.learning_rates, "One trial each")
      ->delimiter(',')
      ->capture_default_str();
  return tandem::internal::run_program(app, argc, argv, [&] {
    run(flags);
    return tandem::internal::kExitDone;
  });
}
