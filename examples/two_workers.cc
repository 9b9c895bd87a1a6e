// TensorFlow's tutorial on MultiWorkerMirroredStrategy with Keras, with its constants: a convolutional
// network on two machines, 64 pictures per worker and step. In two terminals of one machine:
//
//   TF_CONFIG='{"cluster": {"worker": ["localhost:12345", "localhost:23456"]},
//               "task": {"type": "worker", "index": 0}}' two_workers
//
//   TF_CONFIG='{"cluster": {"worker": ["localhost:12345", "localhost:23456"]},
//               "task": {"type": "worker", "index": 1}}' two_workers
//
// or in one: tandem launch --workers 2 -- two_workers
//
// Trains on Fashion-MNIST from Debian's package dataset-fashion-mnist, or on the files in a folder that is
// given, for 5 epochs or as many steps as are given: two_workers [FOLDER [STEPS]]. The first worker ends with
//
//   5 epochs on 2 workers: loss 0.2243, accuracy 0.9171
#include <fmt/format.h>
#include <tandem/tandem.h>

#include <string>

#include "cli/program.h"

namespace {

constexpr int kEpochs = 5;
constexpr int kBatchSizePerReplica = 64;
constexpr double kLearningRate = 0.001;

void train(const std::string& folder, std::optional<std::int64_t> steps) {
  const tandem::MultiWorkerMirroredStrategy strategy;
  // A batch is what all replicas of all workers see in a step.
  const std::int64_t batch_size = kBatchSizePerReplica * strategy.num_replicas_in_sync();
  const auto data = tandem::data::mnist(folder, tandem::data::Split::kTrain)
                        .shuffle(60000)
                        .map(tandem::data::prepare_mnist)
                        .batch(batch_size)
                        .prefetch(2);

  tandem::Model model = strategy.scope([] {
    tandem::Model m([] {
      return torch::nn::Sequential(torch::nn::Conv2d(1, 32, 3), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                   torch::nn::Flatten(), torch::nn::Linear(32 * 13 * 13, 64),
                                   torch::nn::ReLU(), torch::nn::Linear(64, 10));
    });
    m.compile({.optimizer = tandem::optimizers::Adam({.learning_rate = kLearningRate}),
               .loss = tandem::losses::sparse_categorical_crossentropy(),
               .metrics = {tandem::metrics::accuracy()}});
    return m;
  });
  const tandem::History history = model.fit(data, {.epochs = kEpochs, .max_steps = steps});
  if (strategy.is_chief()) {
    fmt::print("{} epochs on {} workers: loss {:.4f}, accuracy {:.4f}\n", history.epoch.size(),
               strategy.communicator() ? strategy.communicator()->size() : 1,
               history.history.at("loss").back(), history.history.at("accuracy").back());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a convolutional network on two workers", "two_workers");
  std::string folder;
  std::optional<std::int64_t> steps;
  app.add_option("folder", folder, "With the four files of MNIST");
  app.add_option("steps", steps, "To end after");
  return tandem::internal::run_program(app, argc, argv, [&] {
    train(folder.empty() ? tandem::data::fashion_mnist_dir() : folder, steps);
    return 0;
  });
}
