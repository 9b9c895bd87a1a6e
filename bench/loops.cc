// What a custom loop and a MonitoredTrainingSession cost beside fit(): ResNet-20, 16 pictures per replica.
//
//   bench_loops [--rounds 100] [--steps 8] [--replicas 2]
//
// All train in turn, in many short rounds. Fails if the custom loop takes more than 1 % longer than fit(), or
// the session more than 2 %.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include "tandem/tandem.h"
#include "turns.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kRowsPerReplica = 16;

Model make_model(const Strategy& strategy) {
  return strategy.scope([] {
    Model model([] { return models::ResNetCifar(20); }, {.seed = 1});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}),
                   .loss = losses::sparse_categorical_crossentropy()});
    return model;
  });
}

struct Bounds {
  const char* name;
  double most;  // in parts of fit()
};

int run(int rounds, std::int64_t steps, int replicas) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back(fmt::format("/cpu:{}", i));
  const MirroredStrategy strategy({.devices = devices});
  const std::int64_t batch = kRowsPerReplica * replicas;
  const Dataset data =
      Dataset::from_tensors(torch::rand({batch * steps, 3, 32, 32}), torch::randint(10, {batch * steps}))
          .batch(batch);
  Model for_fit = make_model(strategy), for_loop = make_model(strategy), for_session = make_model(strategy);
  Optimizer optimizer = for_loop.optimizer();
  auto loop_batches = strategy.distribute(data.repeat()),
       session_batches = strategy.distribute(data.repeat());
  MonitoredTrainingSession session(for_session);

  const auto step = [&](ReplicaContext& replica, const Batch& piece) {
    const at::Tensor scores = for_loop.on(replica)(piece.x);
    optimizer.minimize(replica, replica.scale(at::cross_entropy_loss(scores, piece.y.tensor())), for_loop);
  };
  const auto seconds = take_turns<double>(
      rounds, {[&] { return seconds_of([&] { for_fit.fit(data, {.verbose = Verbose::kSilent}); }); },
               [&] { return seconds_of([&] { train_steps(strategy, loop_batches, steps, step); }); },
               [&] {
                 return seconds_of([&] {
                   for (std::int64_t i = 0; i < steps; ++i) {
                     session.run([&] { return for_session.train_step(session_batches.next()); });
                   }
                 });
               }});
  fmt::print("ResNet-20, {} replicas x {} pictures, {} rounds of {} steps\n", replicas, kRowsPerReplica,
             rounds, steps);
  fmt::print("  {:<26} {:8.2f} ms per step\n", "fit", 1e3 * median(seconds[0]) / static_cast<double>(steps));
  int failed = 0;
  for (const auto& [place, bound] :
       {std::pair{1, Bounds{"custom loop", 0.01}}, {2, Bounds{"session", 0.02}}}) {
    const auto& each = seconds[static_cast<std::size_t>(place)];
    const Spread more = ratio(each, seconds[0]);
    const bool holds = more.median - 1 <= bound.most;
    failed += !holds;
    fmt::print("  {:<26} {:8.2f} ms per step, {:+.2f} % ({:+.2f} to {:+.2f}), at most {:+.0f} %: {}\n",
               bound.name, 1e3 * median(each) / static_cast<double>(steps), 100 * (more.median - 1),
               100 * (more.low - 1), 100 * (more.high - 1), 100 * bound.most,
               holds ? "holds" : "DOES NOT HOLD");
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app("What other loops cost beside fit()", "bench_loops");
  int rounds = 100, replicas = 2;
  std::int64_t steps = 8;
  app.add_option("--rounds", rounds)->capture_default_str();
  app.add_option("--steps", steps)->capture_default_str();
  app.add_option("--replicas", replicas)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return tandem::bench::run(rounds, steps, replicas);
}
