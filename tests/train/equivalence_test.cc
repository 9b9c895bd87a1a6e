// The backbone: N replicas do what one does on the whole batch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing_support::expect_near;
using testing_support::mirrored;
using testing_support::Values;

constexpr int kSteps = 20;
constexpr int kBatch = 16;
constexpr int kLastBatch = 5;  // over 4 replicas: 2, 2, 1 and no rows

Dataset pictures(at::ScalarType dtype) {
  torch::manual_seed(11);
  const int rows = (kSteps - 1) * kBatch + kLastBatch;
  return Dataset::from_tensors(torch::randn({rows, 1, 28, 28}).to(dtype), torch::randint(10, {rows}));
}

using MakeOptimizer = Optimizer (*)();

Model train(const Strategy& strategy, at::ScalarType dtype, Optimizer optimizer) {
  Model model = strategy.scope([&] {
    Model m(
        [dtype] {
          models::LeNet net;
          net->to(dtype);
          return net;
        },
        {.seed = 3});
    m.compile({.optimizer = optimizer, .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
  const History history =
      model.fit(pictures(dtype).shuffle(1000).batch(kBatch), {.verbose = Verbose::kSilent});
  EXPECT_EQ(history.steps, kSteps);
  return model;
}

struct OptimizerCase {
  const char* name;
  MakeOptimizer make;
};

class Equivalence : public testing::TestWithParam<std::tuple<int, OptimizerCase>> {};

INSTANTIATE_TEST_SUITE_P(
    Replicas, Equivalence,
    testing::Combine(testing::Values(2, 4),
                     testing::Values(OptimizerCase{"SgdMomentum",
                                                   [] {
                                                     return optimizers::SGD(
                                                         {.learning_rate = 0.05, .momentum = 0.9});
                                                   }},
                                     OptimizerCase{"SgdNesterovDecay",
                                                   [] {
                                                     return optimizers::SGD(
                                                         {.learning_rate = 0.05,
                                                          .momentum = 0.9,
                                                          .nesterov = true,
                                                          .weight_decay = 1e-3,
                                                          .decay_filter = optimizers::kernels_only});
                                                   }},
                                     OptimizerCase{"Adam", [] { return optimizers::Adam(); }},
                                     OptimizerCase{"AdamW", [] { return optimizers::AdamW(); }},
                                     OptimizerCase{"RmsProp", [] { return optimizers::RMSprop(); }},
                                     OptimizerCase{"Adagrad", [] { return optimizers::Adagrad(); }},
                                     OptimizerCase{"Ftrl", [] { return optimizers::Ftrl(); }})),
    [](const auto& info) {
      return std::string(std::get<1>(info.param).name) + "On" + std::to_string(std::get<0>(info.param));
    });

TEST_P(Equivalence, NReplicasEqualOneInFloat64) {
  const auto& [replicas, optimizer] = GetParam();
  const Values one = train(mirrored(1), torch::kDouble, optimizer.make()).values();
  const Values many = train(mirrored(replicas), torch::kDouble, optimizer.make()).values();
  expect_near(many, one, 1e-9);
}

TEST(EquivalenceInFloat32, NReplicasStayCloseToOne) {
  const auto sgd = [] { return optimizers::SGD({.learning_rate = 0.01}); };
  const Values one = train(mirrored(1), torch::kFloat, sgd()).values();
  for (const int replicas : {2, 4}) {
    expect_near(train(mirrored(replicas), torch::kFloat, sgd()).values(), one, 1e-5);
  }
}

// A loop over libtorch alone, with a bound on the norm of all gradients.
Values plain_loop(double clip_norm) {
  // The same initial values: those of a model that was never trained.
  const Values start = Model([] { return models::LeNet(); }, {.seed = 3}).values();
  models::LeNet net;
  net->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : net->named_parameters()) item.value().copy_(start.at(item.key()));
  }
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  auto batches = pictures(torch::kDouble).shuffle(1000).batch(kBatch).iterate({.seed = 3});
  while (const auto batch = batches.next()) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net(batch->x.tensor()), batch->y.tensor()).backward();
    double squares = 0;
    for (const auto& parameter : net->parameters()) squares += parameter.grad().pow(2).sum().item<double>();
    if (std::sqrt(squares) > clip_norm) {
      for (const auto& parameter : net->parameters()) parameter.grad().mul_(clip_norm / std::sqrt(squares));
    }
    optimizer.step();
  }
  Values expected;
  for (const auto& item : net->named_parameters()) expected[item.key()] = item.value().detach();
  return expected;
}

TEST(EquivalenceWithLibtorch, OneReplicaDoesWhatAPlainLoopDoes) {
  const Model model =
      train(mirrored(1), torch::kDouble, optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}));
  expect_near(model.values(), plain_loop(std::numeric_limits<double>::infinity()), 1e-9);
}

// Sharded over the replicas, and whole on each of them.
TEST(EquivalenceWithLibtorch, GradientsAreClippedByTheNormOverAllReplicas) {
  constexpr double kNorm = 0.3;  // below that of each step
  const Values expected = plain_loop(kNorm);
  const std::vector<std::string> devices{"/cpu:0", "/cpu:1"};
  for (const Strategy& strategy : std::vector<Strategy>{mirrored(1), mirrored(3),
                                                        MirroredStrategy({.devices = devices,
                                                        .threads_per_replica = 1,
                                                        .cross_device_ops = reduction_to_one_device()})}) {
    const Model model =
        train(strategy, torch::kDouble,
              optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9, .global_clipnorm = kNorm}));
    expect_near(model.values(), expected, 1e-9);
  }
}

// Dropout, batch norm and a shuffled dataset: everything that could differ from run to run.
Model train_with_dropout(const Strategy& strategy, std::uint64_t seed) {
  Model model = strategy.scope([&] {
    Model m(
        [] {
          return torch::nn::Sequential(torch::nn::Linear(20, 64), torch::nn::BatchNorm1d(64),
                                       torch::nn::Dropout(0.5), torch::nn::ReLU(), torch::nn::Linear(64, 10));
        },
        {.seed = seed});
    m.compile({.optimizer = optimizers::Adam(), .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
  torch::manual_seed(1);
  const auto data = Dataset::from_tensors(torch::randn({200, 20}), torch::randint(10, {200}));
  model.fit(data.shuffle(200).batch(32).prefetch(2), {.epochs = 3, .verbose = Verbose::kSilent});
  return model;
}

TEST(Determinism, TwoRunsWithOneSeedAreBitwiseEqual) {
  for (const int replicas : {1, 2, 3}) {
    const std::string first = train_with_dropout(mirrored(replicas), 5).parameter_digest();
    EXPECT_EQ(train_with_dropout(mirrored(replicas), 5).parameter_digest(), first);
    EXPECT_NE(train_with_dropout(mirrored(replicas), 6).parameter_digest(), first);
  }
}

TEST(Determinism, ReplicasAreBitwiseEqualAfterEveryStep) {
  const auto strategy = mirrored(3);
  Model model = strategy.scope([] {
    Model m([] { return models::LeNet(); }, {.seed = 1});
    m.compile({.optimizer = optimizers::Adam(), .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
  auto batches = strategy.distribute(pictures(torch::kFloat).batch(kBatch));
  int steps = 0;
  const auto digests = [&] {
    return strategy.run([&](ReplicaContext& replica) {
      std::vector<at::Tensor> parameters;
      for (const auto& parameter : model.on(replica).module().parameters())
        parameters.push_back(parameter.detach().clone());
      return parameters;
    });
  };
  while (const auto batch = batches.next_as_optional()) {
    model.train_step(*batch);
    const auto all = digests();
    for (std::size_t i = 0; i < all[0].size(); ++i) {
      ASSERT_TRUE(all[0][i].equal(all[1][i]) && all[0][i].equal(all[2][i]))
          << "step " << steps << ", parameter " << i;
    }
    ++steps;
  }
  EXPECT_EQ(steps, kSteps);
}

TEST(CustomLoop, EqualsFit) {
  const auto data = pictures(torch::kDouble).shuffle(1000).batch(kBatch);
  const Values fitted = train(mirrored(2), torch::kDouble, optimizers::SGD({.learning_rate = 0.05})).values();

  const auto strategy = mirrored(2);
  auto [model, optimizer] = strategy.scope([] {
    return std::pair(Model(
                         [] {
                           models::LeNet net;
                           net->to(torch::kDouble);
                           return net;
                         },
                         {.seed = 3}),
                     optimizers::SGD({.learning_rate = 0.05}));
  });
  auto batches = strategy.distribute(data, {.seed = 3});
  while (const auto batch = batches.next_as_optional()) {
    strategy.run(
        [&, &model = model, &optimizer = optimizer](ReplicaContext& replica, const Batch& piece) {
          at::Tensor loss;
          if (piece.rows() > 0) {
            loss = replica.scale(
                torch::nn::functional::cross_entropy(model.on(replica)(piece.x), piece.y.tensor()));
          }
          optimizer.minimize(replica, loss);
        },
        *batch);
  }
  expect_near(model.values(), fitted, 1e-12);
}

}  // namespace
}  // namespace tandem
