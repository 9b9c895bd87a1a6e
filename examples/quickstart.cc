// The smallest program: a line fitted on every core of this machine.
//
//   quickstart
//
// Ends with
//
//   y = 3.00 x + 2.00, on 2 replicas
#include <fmt/format.h>
#include <tandem/tandem.h>

int main() {
  const at::Tensor x = torch::rand({1000, 1});
  const auto train = tandem::Dataset::from_tensors(x, 3 * x + 2).shuffle(1000).batch(40);

  tandem::MirroredStrategy strategy;  // one replica per GPU, or per core
  tandem::Model model = strategy.scope([] {
    tandem::Model m([] { return torch::nn::Linear(1, 1); });
    m.compile({.optimizer = tandem::optimizers::SGD({.learning_rate = 0.5}),
               .loss = tandem::losses::mean_squared_error()});
    return m;
  });
  model.fit(train, {.epochs = 20});

  const auto values = model.values();
  fmt::print("y = {:.2f} x + {:.2f}, on {} replicas\n", values.at("weight").item<float>(),
             values.at("bias").item<float>(), strategy.num_replicas_in_sync());
}
