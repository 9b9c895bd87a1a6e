// A Keras program on several devices of one machine: what it takes beside a program for one device is the
// strategy, and its scope.
//
//   fit_mirrored [REPLICAS]
//
// Trains LeNet on Fashion-MNIST (Debian's package dataset-fashion-mnist), or on generated pictures where that
// is not installed, and ends with a line such as
//
//   2 replicas, 100 steps: loss 0.9571, accuracy 0.6639
#include <fmt/format.h>
#include <tandem/tandem.h>

#include <filesystem>

#include "cli/program.h"

namespace {

constexpr std::int64_t kSteps = 100;

tandem::Dataset pictures() {
  const std::string folder = tandem::data::fashion_mnist_dir();
  if (std::filesystem::exists(folder)) return tandem::data::mnist(folder, tandem::data::Split::kTrain);
  // Each class is a bright bar of its own.
  return tandem::Dataset::from_function(6000, [](std::int64_t i) {
    at::Tensor picture = torch::zeros({1, 28, 28}, torch::kByte);
    picture.narrow(1, i % 10 * 2 + 3, 4).fill_(200);
    return tandem::Batch{picture, torch::tensor(i % 10, torch::kLong)};
  });
}

void train(int replicas) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back(fmt::format("/cpu:{}", i));
  tandem::MirroredStrategy strategy({.devices = devices});

  const auto data = pictures().shuffle(6000).map(tandem::data::prepare_mnist).batch(64).repeat().prefetch(2);
  tandem::Model model = strategy.scope([] {
    tandem::Model m([] { return tandem::models::LeNet(); });
    m.compile({.optimizer = tandem::optimizers::Adam(),
               .loss = tandem::losses::sparse_categorical_crossentropy(),
               .metrics = {tandem::metrics::accuracy()}});
    return m;
  });
  const tandem::History history = model.fit(data, {.max_steps = kSteps});
  fmt::print("{} replicas, {} steps: loss {:.4f}, accuracy {:.4f}\n", strategy.num_replicas_in_sync(),
             history.steps, history.history.at("loss").back(), history.history.at("accuracy").back());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains LeNet on several devices", "fit_mirrored");
  int replicas = 2;
  app.add_option("replicas", replicas, "How many")->check(CLI::Range(1, 8));
  return tandem::internal::run_program(app, argc, argv, [&] {
    train(replicas);
    return 0;
  });
}
