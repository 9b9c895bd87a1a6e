// A user's program, built against an installed tandem.
#include <tandem/mirrored_strategy.h>
#include <tandem/model.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  const at::Tensor x = torch::rand({64, 1});
  tandem::MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  tandem::Model model = strategy.scope([] {
    tandem::Model m([] { return torch::nn::Linear(1, 1); }, {.seed = 1});
    m.compile({.optimizer = tandem::optimizers::SGD({.learning_rate = 0.5}),
               .loss = tandem::losses::mean_squared_error()});
    return m;
  });
  model.fit(tandem::Dataset::from_tensors(x, 3 * x + 2).batch(16),
            {.epochs = 100, .verbose = tandem::Verbose::kSilent});
  const double loss = model.evaluate(tandem::Dataset::from_tensors(x, 3 * x + 2).batch(16)).at("loss");
  std::cout << "loss " << loss << std::endl;
  return loss < 1e-3 ? 0 : 1;
}
