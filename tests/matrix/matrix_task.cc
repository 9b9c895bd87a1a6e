// One program, written in every way, for every strategy: only a flag says which.
//
//   matrix_task --distribution_strategy mirrored --model_dir FOLDER [--num_cpus 2] [--loop fit]
//
// Finds the coefficients of a plane, and prints them as "cell LOOP w0 w1 w2 bias"; on the chief, for each
// way.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "cli/program.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

constexpr std::int64_t kRows = 96;
constexpr std::int64_t kBatch = 12;  // of all replicas
constexpr std::int64_t kSteps = 240;
constexpr std::uint64_t kSeed = 1;

// y = x * (1, -2, 3) + 0.5, the same on every task.
Dataset plane() {
  torch::manual_seed(7);
  const at::Tensor x = torch::rand({kRows, 3}, torch::kDouble) * 2 - 1;
  const at::Tensor weights = torch::tensor({1.0, -2.0, 3.0}, torch::kDouble);
  return Dataset::from_tensors(x, x.matmul(weights).unsqueeze(1) + 0.5);
}

torch::nn::Linear network() {
  torch::nn::Linear net(3, 1);
  net->to(torch::kDouble);
  return net;
}

Optimizer optimizer() {
  return optimizers::SGD({.learning_rate = 0.1});
}

Model compiled_model(const Strategy& strategy) {
  return strategy.scope([] {
    Model model(network, {.seed = kSeed});
    model.compile({.optimizer = optimizer(), .loss = losses::mean_squared_error()});
    return model;
  });
}

using Coefficients = std::map<std::string, at::Tensor>;

Coefficients fit(const Strategy& strategy, const std::string&) {
  Model model = compiled_model(strategy);
  model.fit(plane().batch(kBatch).repeat(), {.max_steps = kSteps, .verbose = Verbose::kSilent});
  return model.values();
}

Coefficients custom_loop(const Strategy& strategy, const std::string&) {
  auto [model, descent] =
      strategy.scope([] { return std::pair(Model(network, {.seed = kSeed}), optimizer()); });
  DistributedDataset batches = strategy.distribute(plane().batch(kBatch).repeat());
  const auto step = [&, &model = model, &descent = descent](ReplicaContext& replica, const Batch& piece) {
    at::Tensor loss;
    if (piece.rows() > 0) loss = replica.scale(torch::mse_loss(model.on(replica)(piece.x), piece.y.tensor()));
    descent.minimize(replica, loss, model);
  };
  while (model.global_step() < kSteps) train_steps(strategy, batches, kSteps / 4, step);
  return model.values();
}

Coefficients estimator(const Strategy& strategy, const std::string& model_dir) {
  const auto model_fn = [](const Tensors&, const Tensors&, ModeKeys, const HParams&, const RunConfig&) {
    return EstimatorSpec{.module = network, .loss = losses::mean_squared_error(), .optimizer = optimizer()};
  };
  Estimator estimator(model_fn, {.model_dir = model_dir + "/estimator",
                                 .config = {.tf_random_seed = kSeed, .train_distribute = strategy}});
  estimator.train(
      [](const InputContext& context) {
        return plane()
            .batch(context.get_per_replica_batch_size(kBatch))
            .shard(context.num_input_pipelines, context.input_pipeline_id)
            .repeat();
      },
      {.max_steps = kSteps});
  if (!strategy.is_chief()) return {};
  return {{"weight", estimator.get_variable_value("weight")}, {"bias", estimator.get_variable_value("bias")}};
}

Coefficients monitored_session(const Strategy& strategy, const std::string& model_dir) {
  Model model = compiled_model(strategy);
  DistributedDataset batches = strategy.distribute(plane().batch(kBatch).repeat());
  MonitoredTrainingSession session(
      model, {.checkpoint_dir = model_dir + "/session", .hooks = {StopAtStepHook({.last_step = kSteps})}});
  while (!session.should_stop()) session.run([&] { return model.train_step(batches.next()); });
  session.close();
  return model.values();
}

struct Loop {
  const char* name;
  Coefficients (*train)(const Strategy&, const std::string& model_dir);
};
constexpr Loop kLoops[]{{"fit", fit},
                        {"custom_loop", custom_loop},
                        {"estimator", estimator},
                        {"monitored_session", monitored_session}};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app("Trains in every way", "matrix_task");
  std::string name, model_dir, only;
  StrategyFlags flags{.seed = kSeed};
  app.add_option("--distribution_strategy", name)->required();
  app.add_option("--model_dir", model_dir)->required();
  app.add_option("--num_cpus", flags.num_cpus);
  app.add_option("--loop", only);
  // Nobody waits for it, but the first step does for all workers: one that comes when the training is over,
  // as it may on a busy machine, would find no ps any more.
  flags.parameter_server.max_staleness = 1'000'000;
  return internal::run_program(app, argc, argv, [&] {
    if (serve_from_flags(name, flags)) return 0;
    const Strategy strategy = strategy_from_flag(name, flags);
    for (const Loop& loop : kLoops) {
      if (!only.empty() && only != loop.name) continue;
      const Coefficients values = loop.train(strategy, model_dir);
      if (!strategy.is_chief()) continue;
      const at::Tensor all =
          torch::cat({values.at("weight").flatten(), values.at("bias")}).to(torch::kDouble);
      fmt::print("cell {} {:.17g}\n", loop.name,
                 fmt::join(all.data_ptr<double>(), all.data_ptr<double>() + 4, " "));
      std::fflush(stdout);
    }
    return 0;
  });
}
