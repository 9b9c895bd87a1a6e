#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>

#include "sections.h"
#include "tandem/losses.h"
#include "tandem/metrics.h"
#include "tandem/model.h"
#include "tandem/one_device_strategy.h"
#include "tandem/optimizers.h"
#include "turns.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kSteps = 500;

// A model of next to nothing: what is left is the loop around it.
Model make_tiny(std::int64_t steps_per_execution) {
  return OneDeviceStrategy("/cpu:0", {.threads_per_replica = 1}).scope([&] {
    Model model([] { return torch::nn::Linear(1, 1); }, {.seed = 1});
    model.compile({.optimizer = optimizers::SGD(),
                   .loss = losses::mean_squared_error(),
                   .steps_per_execution = steps_per_execution});
    return model;
  });
}

}  // namespace

void fit_overhead(int rounds, Report& report) {
  const at::Tensor x = torch::rand({kSteps, 1});
  const Dataset data = Dataset::from_tensors(x, 3 * x).batch(1);
  std::vector<Model> models{make_tiny(1), make_tiny(50)};
  std::vector<std::function<double()>> variants;
  for (Model& model : models) {
    variants.push_back(
        [&] { return seconds_of([&] { model.fit(data, {.verbose = Verbose::kSilent}); }) / kSteps; });
  }
  const auto seconds = take_turns<double>(rounds, variants);
  fmt::print("\nfit: a step of a model of one weight (middle half of {} rounds of {} steps)\n", rounds,
             kSteps);
  const char* names[] = {"1 step per execution", "50 steps per execution"};
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Spread each = spread(seconds[i]);
    fmt::print("  {:<24} {:6.1f} us ({:.1f} to {:.1f})\n", names[i], 1e6 * each.median, 1e6 * each.low,
               1e6 * each.high);
    report.add(fmt::format("fit: us per step, {}", names[i]), 1e6 * each.median);
  }
  std::fflush(stdout);
}

}  // namespace tandem::bench
