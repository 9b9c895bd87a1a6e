// Writes what tests/python/check_export.py opens with Python's torch and safetensors: a model with statistics
// of two replicas, its weights, its TorchScript, and what it answers.
//
//   export_model FOLDER
#include <fmt/format.h>

#include "checkpoint/tensors.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace {

using namespace tandem;

void export_to(const std::string& folder, const std::string& name, Model model, const at::Tensor& x) {
  model.fit(Dataset::from_tensors(x, torch::arange(x.size(0)).remainder(10)).batch(4),
            {.verbose = Verbose::kSilent});
  const std::string path = folder + "/" + name;
  model.save_weights(path + ".safetensors");
  model.save_torchscript(path + ".pt", x.slice(0, 0, 2));
  const at::Tensor y = model.predict(Dataset::from_tensors(x, torch::zeros({x.size(0)})).batch(4));
  internal::PosixFileSystem files;
  internal::write_safetensors(files, path + ".expected.safetensors",
                              internal::bytes_of_all({{"x", x}, {"y", y}}));
}

template <typename Factory>
Model make(Factory factory) {
  return testing_support::mirrored(2).scope([&] {
    Model m(factory, {.seed = 3});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.01}),
               .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "export_model: expected one argument, the folder to write to\n");
    return 2;
  }
  torch::manual_seed(1);
  export_to(argv[1], "lenet", make([] { return models::LeNet(); }), torch::randn({12, 1, 28, 28}));
  export_to(argv[1], "resnet", make([] { return models::ResNetCifar(20); }), torch::randn({12, 3, 32, 32}));
  return 0;
}
