#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "sections.h"
#include "tandem/data/cifar10.h"
#include "tandem/dataset.h"
#include "turns.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kImages = 50000;
constexpr std::int64_t kBatch = 256;
constexpr double kBar = 30000;

// Made beforehand: what a program reads from files lies in memory too, and making images is not what is
// measured.
Dataset generated_images() {
  const Batch all =
      data::synthetic_cifar10(data::Split::kTrain, kImages).batch(kImages).iterate().next().value();
  return Dataset::from_tensors(all.x, all.y);
}

}  // namespace

void input_speed(int rounds, const std::string& data_dir, Report& report) {
  const Dataset images = data_dir.empty() ? generated_images() : data::cifar10(data_dir, data::Split::kTrain);
  const Dataset batches = images.shuffle(kImages).map(data::augment_cifar).batch(kBatch);
  // A turn is a whole epoch, some hundred batches.
  const int epochs = std::max(3, rounds / 3);
  fmt::print(
      "\nInput: CIFAR-10 ({}), shuffled, augmented, batches of {}, on one core (middle half of {} epochs)\n",
      data_dir.empty() ? "generated" : data_dir, kBatch, epochs);
  std::fflush(stdout);

  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  std::int64_t epoch = 0;
  const auto rates = take_turns<double>(epochs, {[&] {
                                          std::int64_t rows = 0;
                                          const double seconds = seconds_of([&] {
                                            auto iterator = batches.iterate({.epoch = epoch++});
                                            while (const auto batch = iterator.next()) rows += batch->rows();
                                          });
                                          return static_cast<double>(rows) / seconds;
                                        }});
  at::set_num_threads(threads);

  const Spread rate = spread(rates[0]);
  fmt::print("  {:<52} {:>8.0f}   ({:.0f} to {:.0f})\n", "images/s", rate.median, rate.low, rate.high);
  report.add("input_images_per_second", rate.median);
  report.add(
      {.what = "input on one core", .value = rate.median, .bar = kBar, .unit = " images/s", .digits = 0});
}

}  // namespace tandem::bench
