// train_and_evaluate() on every task of a cluster: the workers train together, an evaluator looks at each new
// checkpoint.
//
//   tandem launch --workers 2 --evaluator -- estimator_cluster [FOLDER]      (default: estimator_cluster_run)
//
// and with parameter servers, in another folder:
//
//   tandem launch --ps 1 --workers 2 --evaluator -- estimator_cluster ps_run
//     --distribution_strategy parameter_server
//
// TF_CONFIG tells each process which task it is. The evaluator ends with
//
//   step 300: y = 3.00 x + 2.00, loss 0.0000
//
// In no cluster it trains and evaluates by itself.
#include <fmt/format.h>
#include <tandem/tandem.h>

#include "cli/program.h"

namespace {

tandem::Dataset line() {
  const at::Tensor x = torch::linspace(-1, 1, 512);
  return tandem::Dataset::from_tensors(tandem::Tensors::Map{{"feats", x}}, (3 * x + 2).unsqueeze(1));
}

// A batch is one replica's; each worker has its own part of the data.
tandem::Dataset train_input(const tandem::InputContext& context) {
  return line().shard(context.num_input_pipelines, context.input_pipeline_id).shuffle(512).batch(16).repeat();
}

void train(const std::string& folder, const std::string& strategy_name) {
  if (tandem::serve_from_flags(strategy_name, {})) return;  // a ps is done
  const tandem::Strategy strategy = tandem::strategy_from_flag(strategy_name);
  const tandem::RunConfig config{
      .save_checkpoints_steps = 100, .train_distribute = strategy, .experimental_max_worker_delay_secs = 0};
  tandem::LinearRegressor regressor({tandem::numeric_column("feats")},
                                    {.model_dir = folder, .config = config, .optimizer = "SGD"});
  const tandem::Logs result = tandem::train_and_evaluate(
      regressor, {.input_fn = train_input, .max_steps = 300},
      {.input_fn = [] { return line().batch(128); }, .start_delay_secs = 0, .throttle_secs = 0});
  if (result.size() == 0) return;  // this task only trains
  fmt::print("step {:.0f}: y = {:.2f} x + {:.2f}, loss {:.4f}\n", result.at("global_step"),
             regressor.get_variable_value("feats_weights").item<float>(),
             regressor.get_variable_value("bias").item<float>(), result.at("loss"));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains and evaluates an Estimator in a cluster", "estimator_cluster");
  std::string folder = "estimator_cluster_run", strategy = "multi_worker_mirrored";
  app.add_option("folder", folder, "Of checkpoints and summaries, which all tasks see");
  app.add_option("--distribution_strategy", strategy, "multi_worker_mirrored or parameter_server");
  return tandem::internal::run_program(app, argc, argv, [&] { return train(folder, strategy), 0; });
}
