// TensorFlow 1's Supervisor: it restores or initialises, saves in the background, and stops when asked to.
//
//   supervisor [FOLDER [STEPS]]       (default: supervisor_run, 500)
//
// Killed at any time and started again, it goes on from its last checkpoint. Ends with
//
//   step 500: y = 3.00 x + 2.00
#include <fmt/format.h>
#include <tandem/tandem.h>

#include "cli/program.h"

namespace {

void train(const std::string& folder, std::int64_t steps) {
  tandem::MirroredStrategy strategy;
  tandem::Model model = strategy.scope([] {
    tandem::Model m([] { return torch::nn::Linear(1, 1); });
    m.compile({.optimizer = tandem::optimizers::SGD({.learning_rate = 0.1}),
               .loss = tandem::losses::mean_squared_error()});
    return m;
  });
  const at::Tensor x = torch::linspace(-1, 1, 256).unsqueeze(1);
  auto batches =
      strategy.distribute(tandem::Dataset::from_tensors(x, 3 * x + 2).shuffle(256).batch(16).repeat());

  tandem::Supervisor supervisor(model,
                                {.logdir = folder, .save_model_secs = 2, .datasets = {{"train", &batches}}});
  supervisor.managed_session([&](tandem::MonitoredTrainingSession& session) {
    while (!supervisor.should_stop()) {
      if (model.global_step() >= steps) break;
      session.run([&] { return model.train_step(batches.next()); });
    }
  });
  const auto values = model.values();
  fmt::print("step {}: y = {:.2f} x + {:.2f}\n", model.global_step(), values.at("weight").item<float>(),
             values.at("bias").item<float>());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains under a Supervisor", "supervisor");
  std::string folder = "supervisor_run";
  std::int64_t steps = 500;
  app.add_option("folder", folder, "Of checkpoints and summaries");
  app.add_option("steps", steps, "To end after");
  return tandem::internal::run_program(app, argc, argv, [&] { return train(folder, steps), 0; });
}
