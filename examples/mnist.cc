// Trains LeNet on MNIST's files, or on Fashion-MNIST from Debian's package dataset-fashion-mnist.
//
//   mnist                                                     (Fashion-MNIST, one replica per core)
//   mnist --data_dir FOLDER --distribution_strategy one_device
//   mnist --loop custom                                       (the same training, the loop written out)
//
// On several machines, or in two terminals of this one, the same command in each but for the index:
//
//   mnist --distribution_strategy multi_worker_mirrored --task_index 0
//     --worker_hosts localhost:8080,localhost:8081
//
// Ends with a line such as
//
//   lenet, mirrored, 2 replicas: 4400 images/s, loss 0.2161, test accuracy 0.9012
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numbers>

#include "cli/program.h"
#include "support/program.h"
#include "support/run_figures.h"
#include "tandem/tandem.h"

namespace {

using namespace tandem::examples;

struct Flags : TrainingFlags {
  double learning_rate = 0.001;
  std::string loop = "fit";
  bool compare_one_replica = false;

  void check() const {
    TrainingFlags::check();
    if (loop != "fit" && loop != "custom") {
      throw tandem::InvalidArgument(fmt::format("--loop is \"{}\": expected fit or custom", loop));
    }
    if (loop == "custom" && !model_dir.empty()) {
      throw tandem::InvalidArgument("--loop custom saves nothing: leave out --model_dir, or use --loop fit");
    }
  }
};

// Falls from the first epoch to the last, along half a wave of the cosine.
double scheduled_rate(const Flags& flags, std::int64_t epoch, std::int64_t epochs) {
  const double done = static_cast<double>(epoch) / static_cast<double>(epochs);
  return flags.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

tandem::Model make_model(const tandem::Strategy& strategy, const Flags& flags) {
  return strategy.scope([&] {
    tandem::Model m([] { return tandem::models::LeNet(); }, {.seed = flags.seed, .policy = flags.policy()});
    m.compile({.optimizer = tandem::optimizers::Adam({.learning_rate = flags.learning_rate}),
               .loss = tandem::losses::sparse_categorical_crossentropy(),
               .metrics = {tandem::metrics::sparse_categorical_accuracy("accuracy")}});
    return m;
  });
}

// What fit does, as a loop of one's own: the strategy cuts each batch, runs the step on every replica, and
// the optimizer sums their gradients.
void custom_loop(tandem::Model& model, const tandem::Dataset& train_data, const Flags& flags,
                 std::int64_t epochs, RunFigures& figures) {
  const tandem::Strategy& strategy = model.strategy();
  tandem::Optimizer optimizer = model.optimizer();
  figures.set_model(model);
  figures.on_train_begin({});
  std::int64_t steps = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    optimizer.set_learning_rate(scheduled_rate(flags, epoch, epochs));
    figures.on_epoch_begin(epoch);
    auto batches = strategy.distribute(train_data, {.seed = model.seed(), .epoch = epoch});
    while (const auto batch = batches.next_as_optional()) {
      const auto losses = strategy.run(
          [&](tandem::ReplicaContext& replica, const tandem::Batch& piece) {
            at::Tensor loss;  // stays undefined without rows, which adds nothing
            if (piece.rows() > 0) {
              const at::Tensor scores = model.on(replica)(piece.x);
              loss = replica.scale(torch::nn::functional::cross_entropy(scores, piece.y.tensor()));
            }
            optimizer.minimize(replica, loss, model);
            return loss.defined() ? loss.detach() : torch::zeros({});
          },
          *batch);
      const double loss = strategy.reduce(tandem::ReduceOp::kSum, losses).item<double>();
      if (!std::isfinite(loss) && flags.on_nan == "stop") {
        throw tandem::NonFiniteLoss(
            fmt::format("the loss is {} at step {}: lower the learning rate", loss, steps));
      }
      figures.on_train_batch_end({.global_step = ++steps, .rows = batch->global_rows(), .loss = loss}, {});
      if (steps == flags.train_steps) return;
    }
    if (strategy.is_chief()) fmt::print("Epoch {}/{}: loss {:.4f}\n", epoch + 1, epochs, figures.loss());
  }
}

// Images per second of one such replica alone, with its part of the batch.
double one_replica_speed(const Flags& flags, const tandem::Strategy& strategy,
                         const tandem::Dataset& examples) {
  const tandem::OneDeviceStrategy alone(strategy.worker_devices().front().name(),
                                        {.threads_per_replica = strategy.threads_per_replica()});
  const auto figures = std::make_shared<RunFigures>();
  make_model(alone, flags)
      .fit(examples.batch(flags.batch_size / strategy.num_replicas_in_sync()).prefetch(2),
           {.max_steps = 100, .callbacks = {figures}, .verbose = tandem::Verbose::kSilent});
  return figures->images_per_second();
}

void train(const Flags& flags) {
  flags.check();
  if (flags.is_evaluator()) return;
  const std::map<std::string, std::string> program{{"model", "lenet"}};
  if (flags.has_served(program)) return;
  const tandem::Strategy strategy = flags.strategy(program);
  const std::string dir = flags.data_dir.empty() ? tandem::data::fashion_mnist_dir() : flags.data_dir;
  const auto examples =
      tandem::data::mnist(dir, tandem::data::Split::kTrain).shuffle(60000).map(tandem::data::prepare_mnist);
  const auto train_data = examples.batch(flags.batch_size).prefetch(2);
  const auto test_data =
      tandem::data::mnist(dir, tandem::data::Split::kTest).map(tandem::data::prepare_mnist).batch(1000);

  tandem::Model model = make_model(strategy, flags);
  const auto figures = std::make_shared<RunFigures>();
  const std::int64_t epochs = flags.epochs(5, train_data.cardinality());
  if (flags.loop == "custom") {
    custom_loop(model, train_data, flags, epochs, *figures);
  } else {
    auto callbacks = flags.callbacks();
    callbacks.push_back(tandem::LearningRateScheduler(
        [&](std::int64_t epoch, double) { return scheduled_rate(flags, epoch, epochs); }));
    callbacks.push_back(figures);
    model.fit(train_data,
              {.epochs = epochs,
               .max_steps = flags.train_steps,
               .callbacks = callbacks,
               .verbose = flags.verbosity(),
               .on_nan = flags.on_nan == "stop" ? tandem::OnNan::kStop : tandem::OnNan::kContinue});
  }

  if (!flags.sums_up(strategy)) return;
  std::optional<double> accuracy;
  if (!flags.skip_eval) accuracy = model.evaluate(test_data).at("accuracy");
  if (strategy.is_chief()) {
    fmt::print("lenet, {}, {} replicas: {:.0f} images/s, loss {:.4f}{}\n", strategy.name(),
               strategy.num_replicas_in_sync(), figures->images_per_second(), figures->loss(),
               accuracy ? fmt::format(", test accuracy {:.4f}", *accuracy) : "");
  }
  if (flags.compare_one_replica) {
    const double alone = one_replica_speed(flags, strategy, examples);
    fmt::print("one replica alone: {:.0f} images/s, so {} do {:.2f} times as much\n", alone,
               strategy.num_replicas_in_sync(), figures->images_per_second() / alone);
  }
  if (!flags.metrics_json.empty()) figures->write_json(flags.metrics_json, model, accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains LeNet on MNIST or Fashion-MNIST", "mnist");
  Flags flags;
  flags.add_to(app);
  app.add_option("--learning_rate", flags.learning_rate, "Adam's in the first epoch; it falls to nothing")
      ->capture_default_str();
  app.add_option("--loop", flags.loop, "fit, or custom: the training loop written out")
      ->capture_default_str();
  app.add_flag("--compare_one_replica", flags.compare_one_replica,
               "Measure one replica alone too, at the end");
  return tandem::internal::run_program(app, argc, argv, [&] { return flags.run([&] { train(flags); }); });
}
