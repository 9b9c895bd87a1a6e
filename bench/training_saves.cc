// What saving costs a training: how long it is held up by a save that does not wait for the disk, beside one
// that does; and how many images a second are left with a checkpoint every 100 steps.
//
//   bench/checkpoint --training [--megabytes 256] [--rounds 7] [--folder DIR]        (builds first)
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>

#include "disk_bench.h"
#include "resnet20.h"
#include "tandem/tandem.h"
#include "turns.h"

namespace tandem::bench {
namespace {

constexpr int kStepsBetween = 100;

// About so many megabytes, a third of them parameters: Adam remembers two values of each.
Model make_large(std::size_t megabytes) {
  const auto width = static_cast<std::int64_t>(1024);
  const auto layers = static_cast<std::int64_t>(megabytes) * 1024 * 1024 / 12 / (width * width);
  Model model(
      [&] {
        torch::nn::Sequential net;
        for (std::int64_t i = 0; i < std::max<std::int64_t>(layers, 1); ++i) {
          net->push_back(torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false)));
        }
        return net;
      },
      {.seed = 1});
  model.compile({.optimizer = optimizers::Adam(), .loss = losses::sparse_categorical_crossentropy()});
  return model;
}

void hold_up(const DiskBench& bench) {
  const auto& [megabytes, rounds, folder] = bench;
  Model model = OneDeviceStrategy("/cpu:0").scope([&] { return make_large(megabytes); });
  const DistributedBatch batch({Batch{.x = torch::randn({4, 1024}), .y = torch::randint(10, {4})}}, 4);
  model.train_step(batch);
  CheckpointManager checkpoints(model, folder + "/large", {.max_to_keep = 1});
  const auto settled = [&] {
    checkpoints.wait();
    model.train_step(batch);
  };
  const auto times = take_turns<double>(rounds, {[&] {
                                                   settled();
                                                   return seconds_of([&] { checkpoints.save(); });
                                                 },
                                                 [&] {
                                                   settled();
                                                   return seconds_of([&] { checkpoints.save_async(); });
                                                 }});
  const auto& whole = times[0];
  const auto& held = times[1];
  fmt::print(
      "{} MB: a save takes {:.0f} ms; one that does not wait for the disk holds training up for {:.0f} ms: "
      "{:.1f} % (bar: 15 %)\n",
      megabytes, 1e3 * median(whole), 1e3 * median(held), 100 * ratio(held, whole).median);
}

// Small batches: the shorter the steps, the more of them a save costs.
void throughput(const DiskBench& bench) {
  const int replicas = 2;
  const std::int64_t rows = 16;
  const MirroredStrategy strategy = mirrored(replicas);
  Model model = make_resnet20(strategy);
  const DistributedBatch batch = random_batch(replicas, rows, replicas * rows);
  CheckpointManager checkpoints(model, bench.folder + "/resnet");
  const auto speed = [&](bool save) {
    checkpoints.wait();
    const double seconds = seconds_of([&] {
      if (save) checkpoints.save_async();
      for (int i = 0; i < kStepsBetween; ++i) model.train_step(batch);
    });
    return static_cast<double>(kStepsBetween * replicas * rows) / seconds;
  };
  const auto speeds =
      take_turns<double>(bench.rounds, {[&] { return speed(false); }, [&] { return speed(true); }});
  fmt::print(
      "ResNet-20, {} x {} images: {:.1f} images/s, with a checkpoint every {} steps {:.1f}: it costs "
      "{:.2f} % (bar: 2 %)\n",
      replicas, rows, median(speeds[0]), kStepsBetween, median(speeds[1]),
      100 * (1 - ratio(speeds[1], speeds[0]).median));
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  return tandem::bench::run_disk_bench(argc, argv, "bench_training_saves",
                                       "Measures what saving costs a training",
                                       [](const tandem::bench::DiskBench& bench) {
                                         tandem::bench::hold_up(bench);
                                         tandem::bench::throughput(bench);
                                       });
}
