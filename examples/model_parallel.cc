// A model that no task holds whole: a table of 20,000 rows lies on the ps tasks, half of it on each, and so
// do the weights of the layers, cut in two by rows. A worker has the layers' values while it computes, and of
// the table the rows that its batch names.
//
//   tandem launch --ps 2 --workers 2 -- model_parallel
//
// Learns which of two articles is the better one, from pairs of them. Ends on the chief with a line such as
//
//   this worker has 2177 of 322177 values: loss 1.0023 before, 0.0123 after 1500 steps
#include <fmt/format.h>
#include <tandem/tandem.h>

#include "cli/program.h"

namespace {

constexpr std::int64_t kArticles = 20'000, kColumns = 16, kHidden = 64;

struct ComparerImpl : torch::nn::Module {
  // ids: [rows, 2].
  at::Tensor forward(const at::Tensor& ids) { return better(torch::relu(hidden(articles(ids).flatten(1)))); }
  tandem::Embedding articles{register_module("articles", tandem::Embedding(kArticles, kColumns))};
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(2 * kColumns, kHidden))};
  torch::nn::Linear better{register_module("better", torch::nn::Linear(kHidden, 1))};
};
TORCH_MODULE(Comparer);

// Every article has a value of its own, between -1 and 1; a pair is labelled with the difference.
tandem::Dataset pairs(std::int64_t count) {
  const at::Tensor value = torch::sin(torch::arange(kArticles) * 2.4f);
  const at::Tensor ids = torch::randint(kArticles, {count, 2}, torch::kLong);
  const at::Tensor both = value.index({ids});
  return tandem::Dataset::from_tensors(ids, both.slice(1, 0, 1) - both.slice(1, 1, 2));
}

void train(std::int64_t steps) {
  tandem::ParameterServerOptions options{.cluster = tandem::resolve_cluster()};
  const auto& cluster = options.cluster->cluster;
  // Variables are cut by rows into parts of 1 KiB or more, one for each ps.
  const int ps_tasks = cluster.has_job("ps") ? cluster.num_tasks("ps") : 1;
  options.variable_partitioner = tandem::MinSizePartitioner(1 << 10, ps_tasks);
  if (tandem::ParameterServerStrategy::serve(options)) return;  // a ps is done
  const tandem::ParameterServerStrategy strategy(options);

  tandem::Model model = strategy.scope([] {
    tandem::Model m([] { return Comparer(); });
    m.compile({.optimizer = tandem::optimizers::Adam({.learning_rate = 0.01}),
               .loss = tandem::losses::mean_squared_error()});
    return m;
  });
  const tandem::Dataset training = pairs(200'000).batch(256).repeat(), test = pairs(5000).batch(500);
  const double before = model.evaluate(test).at("loss");
  model.fit(training, {.max_steps = steps, .verbose = tandem::Verbose::kSilent});
  if (!strategy.is_chief()) return;
  std::int64_t here = 0;
  for (const auto& [name, value] : model.values()) here += value.numel();
  fmt::print("this worker has {} of {} values: loss {:.4f} before, {:.4f} after {} steps\n", here,
             model.num_parameters(), before, model.evaluate(test).at("loss"), steps);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a model that lies on several tasks", "model_parallel");
  std::int64_t steps = 1500;
  app.add_option("--train_steps", steps, "Of all workers together")->capture_default_str();
  return tandem::internal::run_program(app, argc, argv, [&] { return train(steps), 0; });
}
