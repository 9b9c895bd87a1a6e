// Parameter servers by hand, as TensorFlow 1's between-graph replication has them, in its six parts: every
// task runs this program; a ps serves, the chief (worker 0) and the other workers train without waiting for
// each other.
//
//   tandem launch --ps 1 --workers 2 -- monitored_ps
//
// Ends on the chief with
//
//   after 400 steps: y = 3.00 x + 2.00
#include <fmt/format.h>

#include "cli/program.h"
#include "tandem/tandem.h"

namespace {

void train(const std::string& checkpoint_dir, std::int64_t last_step) {
  // 1. The topology: who is in the cluster, and which task this is.
  const tandem::ResolvedCluster resolved = tandem::resolve_cluster();
  resolved.check();
  if (!resolved.task)
    throw tandem::InvalidArgument("no cluster: start this with `tandem launch --ps 1 --workers 2`");
  const tandem::ClusterSpec& cluster = resolved.cluster;

  // 2. Its server. All that a ps does is to join. Where a worker's variables go is for the device setter.
  if (resolved.task->type == "ps") return tandem::Server(cluster, "ps", resolved.task->index).join();
  const tandem::ParameterServerStrategy strategy(
      {.cluster = resolved, .ps_strategy = tandem::replica_device_setter({.cluster = cluster})});

  // 3. The training function: a model, and one step of it.
  tandem::Model model = strategy.scope([] {
    tandem::Model m([] { return torch::nn::Linear(1, 1); });
    m.compile({.optimizer = tandem::optimizers::SGD({.learning_rate = 0.2}),
               .loss = tandem::losses::mean_squared_error()});
    return m;
  });
  const at::Tensor x = torch::rand({1000, 1});
  auto batches = strategy.distribute(tandem::Dataset::from_tensors(x, 3 * x + 2).batch(50).repeat());

  // 4. The session: restores, saves, counts, and knows when to stop.
  tandem::MonitoredTrainingSession session(
      model, {.checkpoint_dir = checkpoint_dir, .hooks = {tandem::StopAtStepHook({.last_step = last_step})}});

  // 5. The steps.
  while (!session.should_stop()) session.run([&] { return model.train_step(batches.next()); });

  // 6. The end: the session saves, and when the workers are gone the ps tasks end too.
  session.close();
  if (!strategy.is_chief()) return;
  const auto values = model.values();
  fmt::print("after {} steps: y = {:.2f} x + {:.2f}\n", last_step, values.at("weight").item<double>(),
             values.at("bias").item<double>());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Parameter servers by hand", "monitored_ps");
  std::string checkpoint_dir;
  std::int64_t last_step = 400;
  app.add_option("--checkpoint_dir", checkpoint_dir, "Where the chief saves (default: nowhere)");
  app.add_option("--train_steps", last_step, "Of all workers together")->capture_default_str();
  return tandem::internal::run_program(app, argc, argv, [&] {
    train(checkpoint_dir, last_step);
    return 0;
  });
}
