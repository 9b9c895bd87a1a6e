// A training step of MobileNetV2, for bench/models: one replica on one thread, Adam, generated pictures.
//
//   bench_models --worker --batch 16 --size 224
//
// Says what it is in a line, then answers each line, "fp32" or "bf16" and a number of steps, with the seconds
// that they took after one that does not count.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "tandem/tandem.h"
#include "turns.h"

namespace tandem::bench {
namespace {

struct Flags {
  std::int64_t batch = 16;
  std::int64_t size = 224;
};

// A model with the one batch that it is stepped on.
struct Contestant {
  Model model;
  DistributedBatch batch;

  void step(int steps) {
    for (int i = 0; i < steps; ++i) model.train_step(batch);
  }
};

Contestant make(const Strategy& strategy, const std::string& policy, const Flags& flags) {
  Model model = strategy.scope([&] {
    Model m([] { return models::MobileNetV2(); }, {.seed = 1, .policy = policy});
    m.compile({.optimizer = optimizers::Adam({.learning_rate = 1e-5}),
               .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
  const auto data = Dataset::from_tensors(torch::randn({flags.batch, 3, flags.size, flags.size}),
                                          torch::randint(1000, {flags.batch}));
  return {model, *strategy.distribute(data.batch(flags.batch)).next_as_optional()};
}

void serve(const Flags& flags) {
  torch::manual_seed(1);
  const OneDeviceStrategy strategy("/cpu:0", {.threads_per_replica = 1});
  std::map<std::string, Contestant> contestants;
  contestants.emplace("fp32", make(strategy, "float32", flags));
  contestants.emplace("bf16", make(strategy, "mixed_bfloat16", flags));
  for (auto& [name, contestant] : contestants) contestant.step(2);
  fmt::print("this tree, libtorch {}\n", TORCH_VERSION);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name;
    int steps = 0;
    words >> name >> steps;
    Contestant& contestant = contestants.at(name);
    contestant.step(1);
    fmt::print("{}\n", seconds_of([&] { contestant.step(steps); }));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app("Training steps of MobileNetV2, for bench/models", "bench_models");
  tandem::bench::Flags flags;
  bool worker = false;
  app.add_option("--batch", flags.batch, "Pictures in a step")->check(CLI::Range(1, 4096));
  app.add_option("--size", flags.size, "Height and width of a picture")->check(CLI::Range(32, 1024));
  app.add_flag("--worker", worker, "Answer bench/models")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    tandem::bench::serve(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_models: {}\n", error.what());
    return 1;
  }
  return 0;
}
