#include "tandem/training_loop.h"

#include <gtest/gtest.h>

#include "loops/support.h"
#include "support/errors.h"

namespace tandem {
namespace {

using testing_support::expect_near;
using testing_support::line_data;
using testing_support::message_of;
using testing_support::mirrored;

// A small network in double precision, so that only mistakes differ.
Model network(const Strategy& strategy) {
  return strategy.scope([] {
    return Model(
        [] {
          torch::nn::Sequential net(torch::nn::Linear(1, 4), torch::nn::Tanh(), torch::nn::Linear(4, 1));
          net->to(torch::kDouble);
          return net;
        },
        {.seed = 5});
  });
}

Dataset doubles(std::int64_t rows) {
  return line_data(rows).map([](Batch example) {
    return example.transform([](const at::Tensor& one) { return one.to(torch::kDouble); });
  });
}

at::Tensor squared_errors(const Model& model, ReplicaContext& replica, const Batch& piece) {
  return losses::mean_squared_error().per_example(piece.y, model.on(replica)(piece.x));
}

// One step of an ordinary loop.
void train_piece(const Model& model, Optimizer& optimizer, ReplicaContext& replica, const Batch& piece) {
  at::Tensor loss;
  if (piece.rows() > 0)
    loss = compute_average_loss(squared_errors(model, replica, piece), replica.global_rows());
  optimizer.minimize(replica, loss, model);
}

TEST(TrainStepsTest, DoesTheSameStepsAsALoopOnTheHost) {
  const auto train = [](int replicas, bool inside) {
    const auto strategy = mirrored(replicas);
    Model model = network(strategy);
    Optimizer optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
    auto batches = strategy.distribute(doubles(29).batch(8));  // 8, 8, 8, 5
    const auto step = [&](ReplicaContext& replica, const Batch& piece) {
      train_piece(model, optimizer, replica, piece);
    };
    if (inside) {
      EXPECT_EQ(train_steps(strategy, batches, 3, step), 3);
      EXPECT_EQ(train_steps(strategy, batches, 3, step), 1);
      EXPECT_EQ(train_steps(strategy, batches, 3, step), 0);
    } else {
      while (const auto batch = batches.next_as_optional()) strategy.run(step, *batch);
    }
    EXPECT_EQ(model.global_step(), 4);
    return model.values();
  };
  for (const int replicas : {1, 3}) expect_near(train(replicas, true), train(replicas, false), 1e-15);
  expect_near(train(3, true), train(1, false), 1e-12);
}

TEST(TrainStepsTest, RethrowsWhatOneReplicaThrowsAndCanGoOn) {
  const auto strategy = mirrored(2);
  auto batches = strategy.distribute(line_data(32).batch(8));
  int steps = 0;
  const auto failing = [&](ReplicaContext& replica, const Batch&) {
    if (replica.id() == 1 && ++steps == 2) throw std::domain_error("replica 1");
  };
  EXPECT_EQ(message_of<std::domain_error>([&] { train_steps(strategy, batches, 4, failing); }), "replica 1");
  EXPECT_EQ(train_steps(strategy, batches, 10, [](ReplicaContext&, const Batch&) {}), 2);
}

TEST(AccumulateTest, IsOneStepOnAllTheRows) {
  constexpr int kParts = 3;
  const auto train = [](int replicas, bool parts) {
    const auto strategy = mirrored(replicas);
    Model model = network(strategy);
    Optimizer optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9, .global_clipnorm = 0.5});
    auto batches = strategy.distribute(doubles(48).batch(parts ? 4 : 4 * kParts));
    int part = 0;
    while (const auto batch = batches.next_as_optional()) {
      const bool last = !parts || ++part % kParts == 0;
      strategy.run(
          [&](ReplicaContext& replica, const Batch& piece) {
            const at::Tensor loss = compute_average_loss(squared_errors(model, replica, piece), 4 * kParts);
            last ? optimizer.minimize(replica, loss) : optimizer.accumulate(replica, loss);
          },
          *batch);
    }
    EXPECT_EQ(model.global_step(), 4);
    return model.values();
  };
  for (const int replicas : {1, 2}) expect_near(train(replicas, true), train(replicas, false), 1e-12);
}

// An update may depend on anything, and parts are not exchanged: a replica that has more of them waits for
// nobody.
TEST(AccumulateTest, MeetsNobodyUntilTheLastPart) {
  const auto strategy = mirrored(2);
  Model model = network(strategy);
  const auto before = model.values();
  Optimizer optimizer = optimizers::SGD({.learning_rate = 0.5});
  const at::Tensor x = torch::linspace(-1, 1, 8, torch::kDouble).unsqueeze(1);
  const auto loss = [&](ReplicaContext& replica, std::int64_t row) {
    return compute_average_loss(
        squared_errors(model, replica, {.x = x.slice(0, row, row + 1), .y = 3 * x.slice(0, row, row + 1)}),
        8);
  };
  strategy.run([&](ReplicaContext& replica) {
    if (replica.id() == 0) {
      for (std::int64_t row = 0; row < 6; ++row) optimizer.accumulate(replica, loss(replica, row));
    }
    optimizer.minimize(replica, loss(replica, replica.id() == 0 ? 6 : 7));
  });
  EXPECT_EQ(model.global_step(), 1);

  Model alone = network(mirrored(1));
  alone.set_values(before);
  Optimizer descent = optimizers::SGD({.learning_rate = 0.5});
  alone.strategy().run([&](ReplicaContext& replica) {
    descent.minimize(replica, compute_average_loss(squared_errors(alone, replica, {.x = x, .y = 3 * x}), 8),
                     alone);
  });
  expect_near(model.values(), alone.values(), 1e-12);
}

TEST(ApplyGradientsTest, IsWhatMinimizeDoes) {
  const auto train = [](bool by_hand) {
    const auto strategy = mirrored(2);
    Model model = network(strategy);
    Optimizer optimizer = optimizers::Adam();
    auto batches = strategy.distribute(doubles(24).batch(8));
    while (const auto batch = batches.next_as_optional()) {
      strategy.run(
          [&](ReplicaContext& replica, const Batch& piece) {
            const at::Tensor loss = replica.scale(squared_errors(model, replica, piece).mean());
            if (!by_hand) return optimizer.minimize(replica, loss, model);
            const auto parameters = model.on(replica).module().parameters();
            optimizer.apply_gradients(replica, torch::autograd::grad({loss}, parameters), model);
          },
          *batch);
    }
    return model.values();
  };
  expect_near(train(true), train(false), 1e-14);
}

TEST(ApplyGradientsTest, RefusesGradientsThatDoNotFit) {
  const auto strategy = mirrored(1);
  Model model = network(strategy);
  Optimizer optimizer = optimizers::SGD();
  EXPECT_NE(message_of<InvalidArgument>([&] {
              strategy.run([&](ReplicaContext& replica) { optimizer.apply_gradients(replica, {}, model); });
            }).find("0 gradients: expected 4"),
            std::string::npos);
}

TEST(MinimizeTest, RefusesALossOfSeveralValuesAndSaysHowToMakeItOne) {
  const auto strategy = mirrored(1);
  Model model = network(strategy);
  Optimizer optimizer = optimizers::SGD();
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              strategy.run([&](ReplicaContext& replica) { optimizer.minimize(replica, torch::ones({8})); });
            }),
            "the loss of replica 0 has 8 values: expected one; compute_average_loss(loss, "
            "replica.global_rows()) is "
            "this replica's part of the mean over the global batch");
}

TEST(FitTest, RefusesALossThatIsAMeanAlreadyAndSaysHowToGiveOne) {
  const auto strategy = mirrored(2);
  Model model = network(strategy);
  model.compile({.optimizer = optimizers::SGD(),
                 .loss = {"mean", [](const at::Tensor& y_true, const at::Tensor& y_pred) {
                            return (y_true - y_pred).square().mean();
                          }}});
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { model.fit(doubles(8).batch(4), {.verbose = Verbose::kSilent}); }),
      "expected one value per example, [rows]: got shape []; leave out the mean or sum over the rows (of "
      "libtorch's losses: torch::kNone), which is then taken over those of all replicas");
}

TEST(ExperimentalNamesTest, AreTheSameThings) {
  using namespace experimental;
  static_assert(std::same_as<experimental::MultiWorkerMirroredStrategy, tandem::MultiWorkerMirroredStrategy>);
  static_assert(std::same_as<experimental::ParameterServerStrategy, tandem::ParameterServerStrategy>);
  static_assert(std::same_as<experimental::TPUStrategy, tandem::TPUStrategy>);
  static_assert(std::same_as<experimental::CentralStorageStrategy, tandem::CentralStorageStrategy>);
  EXPECT_EQ(experimental::MultiWorkerMirroredStrategy(experimental::CollectiveCommunication::kRing).name(),
            "multi_worker_mirrored");
  EXPECT_NE(message_of<Unimplemented>([] { experimental::TPUStrategy("my-tpu"); }).find("for \"my-tpu\""),
            std::string::npos);

  const experimental::CentralStorageStrategy strategy({.compute_devices = {"/cpu:0", "/cpu:1"}});
  const auto id = [](ReplicaContext& replica) { return replica.id() + 0.0; };
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, experimental_run(strategy, id)), 1);
  EXPECT_EQ(experimental_local_results(strategy, experimental_run_v2(strategy, id)),
            (std::vector<double>{0, 1}));

  const auto rows = [](ReplicaContext&, const Batch& piece, std::int64_t more) {
    return piece.rows() + more;
  };
  const auto more = experimental_distribute_values_from_function(
      strategy, [](const ValueContext& context) { return 10L * context.replica_id_in_sync_group; });
  auto batches = experimental_distribute_dataset(strategy, line_data(8).batch(4));
  EXPECT_EQ(experimental_run_v2(strategy, rows, batches.next(), more).values(),
            (std::vector<std::int64_t>{2, 12}));
  auto own = experimental_distribute_datasets_from_function(strategy, [](const InputContext& context) {
    return line_data(8).batch(context.get_per_replica_batch_size(6));
  });
  EXPECT_EQ(experimental_run_v2(strategy, rows, own.next(), more).values(),
            (std::vector<std::int64_t>{3, 13}));
}

}  // namespace
}  // namespace tandem
