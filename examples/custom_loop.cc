// TensorFlow's custom training loop: a step function, train_steps(iterator, steps), and between two calls of
// it what is done now and then: a checkpoint, a summary, an evaluation.
//
//   custom_loop [FOLDER]        (default: custom_loop_run; started again, it goes on)
//   tensorboard --logdir custom_loop_run
//
// Ends with a line such as
//
//   step 400: validation loss 0.0074
#include <fmt/format.h>
#include <tandem/tandem.h>

#include "cli/program.h"

namespace {

constexpr std::int64_t kSteps = 400;
constexpr std::int64_t kPeriod = 100;  // of checkpoints, summaries and evaluations

tandem::Dataset wave(std::int64_t rows) {
  const at::Tensor x = torch::linspace(-1, 1, rows).unsqueeze(1);
  return tandem::Dataset::from_tensors(x, torch::sin(3 * x));
}

void train(const std::string& folder) {
  tandem::MirroredStrategy strategy;
  auto [model, loss_metric] = strategy.scope([] {
    tandem::Model m([] {
      return torch::nn::Sequential(torch::nn::Linear(1, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
    });
    m.compile({.optimizer = tandem::optimizers::Adam({.learning_rate = 0.03}),
               .loss = tandem::losses::mean_squared_error()});
    return std::pair(m, tandem::metrics::mean("train_loss"));
  });
  tandem::Optimizer optimizer = model.optimizer();
  auto batches = strategy.distribute(wave(512).shuffle(512).batch(32).repeat(), {.seed = model.seed()});
  const tandem::Dataset validation = wave(100).batch(50);

  tandem::CheckpointManager checkpoints(model, folder + "/checkpoints");
  checkpoints.track("train", batches);
  if (const auto restored = checkpoints.restore())
    fmt::print("going on after step {}\n", restored->global_step);
  auto writer = tandem::summary::create_file_writer(folder);

  const auto step = [&, &model = model, &metric = loss_metric](tandem::ReplicaContext& replica,
                                                               const tandem::Batch& piece) {
    at::Tensor loss;  // a piece may have no rows: then there is nothing to add
    if (piece.rows() > 0) {
      const at::Tensor mean = torch::mse_loss(model.on(replica)(piece.x), piece.y.tensor());
      loss = replica.scale(mean);  // x rows of this piece / rows of the batch
      metric.update_mean(replica, mean.item<double>(), static_cast<double>(piece.rows()));
    }
    optimizer.minimize(replica, loss, model);
  };
  while (model.global_step() < kSteps) {
    tandem::train_steps(strategy, batches, kPeriod, step);
    checkpoints.save();
    tandem::summary::scalar(writer, "loss", loss_metric.result(), {.step = model.global_step()});
    loss_metric.reset();
    const double validated = model.evaluate(validation).at("loss");
    tandem::summary::scalar(writer, "validation_loss", validated, {.step = model.global_step()});
    fmt::print("step {}: validation loss {:.4f}\n", model.global_step(), validated);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains with a loop of its own", "custom_loop");
  std::string folder = "custom_loop_run";
  app.add_option("folder", folder, "Of checkpoints and summaries");
  return tandem::internal::run_program(app, argc, argv, [&] { return train(folder), 0; });
}
