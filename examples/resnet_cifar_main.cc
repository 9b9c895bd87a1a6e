// Trains a ResNet on CIFAR-10 as TensorFlow's official model does, under the strategy that a flag names.
//
//   resnet_cifar_main --data_dir cifar-10-batches-bin --distribution_strategy mirrored --num_cpus 2
//   resnet_cifar_main --train_steps 100                       (generated data of the same shape)
//
// On several machines, or in two terminals of this one, the same command in each but for the index (TF_CONFIG
// serves instead of the last two flags):
//
//   resnet_cifar_main --distribution_strategy multi_worker_mirrored --task_index 0
//     --worker_hosts localhost:8080,localhost:8081
//
// With parameter servers, all of them on this machine:
//
//   tandem launch --ps 1 --workers 2 -- resnet_cifar_main --distribution_strategy parameter_server
//
// Ends with a line such as
//
//   resnet-20, mirrored, 2 replicas: 412 images/s, loss 0.2514, test accuracy 0.9123
#include <fmt/format.h>

#include <memory>

#include "cli/program.h"
#include "support/program.h"
#include "support/run_figures.h"
#include "tandem/tandem.h"

namespace {

using namespace tandem::examples;

struct Flags : TrainingFlags {
  bool use_synthetic_data = false;
  std::int64_t resnet_size = 20;
};

// The official schedule: 0.1 per 128 rows, a tenth of it from epoch 91, a hundredth from 136, a thousandth
// from 182.
double scheduled_rate(std::int64_t epoch, std::int64_t batch_size) {
  const double base = 0.1 * static_cast<double>(batch_size) / 128;
  if (epoch >= 182) return base * 0.001;
  if (epoch >= 136) return base * 0.01;
  if (epoch >= 91) return base * 0.1;
  return base;
}

tandem::Dataset load(const Flags& flags, tandem::data::Split split) {
  if (!flags.use_synthetic_data && !flags.data_dir.empty())
    return tandem::data::cifar10(flags.data_dir, split);
  const bool train = split == tandem::data::Split::kTrain;
  return tandem::data::synthetic_cifar10(split, train ? 50000 : 10000);
}

void train(const Flags& flags) {
  flags.check();
  if (flags.is_evaluator()) return;
  const std::map<std::string, std::string> program{{"model", fmt::format("resnet-{}", flags.resnet_size)}};
  if (flags.has_served(program)) return;
  const tandem::Strategy strategy = flags.strategy(program);
  const auto train_data = load(flags, tandem::data::Split::kTrain)
                              .shuffle(50000)
                              .map(tandem::data::augment_cifar)
                              .batch(flags.batch_size)
                              .prefetch(2);
  const auto test_data =
      load(flags, tandem::data::Split::kTest).map(tandem::data::prepare_cifar).batch(flags.batch_size);

  tandem::Model model = strategy.scope([&] {
    tandem::Model m([&] { return tandem::models::ResNetCifar(flags.resnet_size); },
                    {.seed = flags.seed, .policy = flags.policy()});
    m.compile({.optimizer = tandem::optimizers::SGD({.learning_rate = scheduled_rate(0, flags.batch_size),
                                                     .momentum = 0.9,
                                                     .weight_decay = 2e-4,
                                                     .decay_filter = tandem::optimizers::kernels_only}),
               .loss = tandem::losses::sparse_categorical_crossentropy(),
               .metrics = {tandem::metrics::sparse_categorical_accuracy("accuracy")}});
    return m;
  });

  const bool real_data = !flags.use_synthetic_data && !flags.data_dir.empty();
  const auto figures = std::make_shared<RunFigures>();
  auto callbacks = flags.callbacks();
  callbacks.push_back(tandem::LearningRateScheduler(
      [&](std::int64_t epoch, double) { return scheduled_rate(epoch, flags.batch_size); }));
  callbacks.push_back(figures);
  model.fit(train_data, {.epochs = flags.epochs(real_data ? 182 : 1, train_data.cardinality()),
                         .max_steps = flags.train_steps,
                         .callbacks = callbacks,
                         .verbose = flags.verbosity(),
                         .on_nan = flags.on_nan == "stop" ? tandem::OnNan::kStop : tandem::OnNan::kContinue});

  if (!flags.sums_up(strategy)) return;
  std::optional<double> accuracy;
  if (!flags.skip_eval) accuracy = model.evaluate(test_data).at("accuracy");
  if (strategy.is_chief()) {
    fmt::print("resnet-{}, {}, {} replicas: {:.0f} images/s, loss {:.4f}{}\n", flags.resnet_size,
               strategy.name(), strategy.num_replicas_in_sync(), figures->images_per_second(),
               figures->loss(), accuracy ? fmt::format(", test accuracy {:.4f}", *accuracy) : "");
  }
  if (!flags.metrics_json.empty()) figures->write_json(flags.metrics_json, model, accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a ResNet on CIFAR-10", "resnet_cifar_main");
  Flags flags;
  flags.add_to(app);
  app.add_flag("--use_synthetic_data", flags.use_synthetic_data,
               "Generated data of CIFAR-10's shape (default without --data_dir)");
  app.add_option("--resnet_size", flags.resnet_size, "20, 32, 44, 56 or 110")->capture_default_str();
  return tandem::internal::run_program(app, argc, argv, [&] { return flags.run([&] { train(flags); }); });
}
