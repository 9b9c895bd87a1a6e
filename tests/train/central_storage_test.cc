#include <gtest/gtest.h>

#include <set>

#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing_support::expect_near;
using testing_support::mirrored;

CentralStorageStrategy central(int replicas) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
  return CentralStorageStrategy({.compute_devices = devices, .threads_per_replica = 1});
}

torch::nn::Sequential net() {
  torch::nn::Sequential made(torch::nn::Linear(20, 64), torch::nn::BatchNorm1d(64), torch::nn::Dropout(0.3),
                             torch::nn::ReLU(), torch::nn::Linear(64, 64), torch::nn::ReLU(),
                             torch::nn::Linear(64, 10));
  made->named_parameters()["4.weight"].set_requires_grad(false);
  return made;
}

Model make(const Strategy& strategy, Optimizer optimizer) {
  return strategy.scope([&] {
    Model m(net, {.seed = 7});
    m.compile({.optimizer = optimizer, .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
}

void fit(Model& model) {
  torch::manual_seed(1);
  const auto data = Dataset::from_tensors(torch::randn({204, 20}), torch::randint(10, {204}));
  model.fit(data.shuffle(204).batch(32), {.epochs = 3, .verbose = Verbose::kSilent});
}

std::vector<std::set<const void*>> addresses(const Model& model) {
  const auto per_replica = model.strategy().run([&](ReplicaContext& replica) {
    std::vector<const void*> all;
    for (const auto& parameter : model.on(replica).module().parameters()) all.push_back(parameter.data_ptr());
    return all;
  });
  std::vector<std::set<const void*>> by_parameter(per_replica[0].size());
  for (const auto& replica : per_replica) {
    for (std::size_t i = 0; i < replica.size(); ++i) by_parameter[i].insert(replica[i]);
  }
  return by_parameter;
}

TEST(CentralStorage, HasExactlyOneAddressPerParameterBeforeAndAfterTraining) {
  Model model = make(central(3), optimizers::Adam());
  for (const auto& places : addresses(model)) EXPECT_EQ(places.size(), 1u);
  fit(model);
  for (const auto& places : addresses(model)) EXPECT_EQ(places.size(), 1u);
  for (const auto& places : addresses(make(mirrored(3), optimizers::Adam()))) EXPECT_EQ(places.size(), 3u);
}

TEST(CentralStorage, EqualsMirroredBitForBit) {
  for (const int replicas : {2, 4}) {
    for (const auto& optimizer : {+[] { return optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}); },
                                  +[] { return optimizers::Adam(); }}) {
      Model one = make(central(replicas), optimizer());
      Model other = make(mirrored(replicas), optimizer());
      fit(one);
      fit(other);
      EXPECT_EQ(one.parameter_digest(), other.parameter_digest());
    }
  }
}

TEST(CentralStorage, KeepsBatchNormStatisticsPerReplica) {
  Model model = make(central(2), optimizers::SGD());
  fit(model);
  const auto own = model.strategy().run([&](ReplicaContext& replica) {
    return model.on(replica).module().named_buffers()["1.running_mean"].clone();
  });
  EXPECT_FALSE(own[0].equal(own[1]));
}

TEST(CentralStorage, UpdatesOncePerStep) {
  // Plain SGD on a known gradient: two updates would move twice as far.
  const auto strategy = central(2);
  Model model = strategy.scope([] {
    Model m([] { return torch::nn::Linear(1, 1); }, {.seed = 1});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.5}), .loss = losses::mean_squared_error()});
    return m;
  });
  const float bias = model.values().at("bias").item<float>();
  const auto data = Dataset::from_tensors(torch::zeros({4, 1}), torch::full({4, 1}, bias - 1));
  model.fit(data.batch(4), {.verbose = Verbose::kSilent});  // d/db (b - y)^2 = 2
  EXPECT_FLOAT_EQ(model.values().at("bias").item<float>(), bias - 1);
}

TEST(CentralStorage, RunsOtherOptimizersOnceOnTheOneCopy) {
  // RMSprop behind a subclass is not known to be element-wise.
  struct Other : torch::optim::Optimizer {
    explicit Other(std::vector<at::Tensor> parameters)
        : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                    std::make_unique<torch::optim::SGDOptions>(0.1)) {}
    at::Tensor step(LossClosure = nullptr) override {
      const torch::NoGradGuard no_grad;
      for (auto& p : param_groups()[0].params()) {
        if (p.grad().defined()) p -= 0.1 * p.grad();
      }
      return {};
    }
  };
  const auto other = [] {
    return optimizers::from_torch(
        [](std::vector<at::Tensor> parameters) { return std::make_unique<Other>(std::move(parameters)); });
  };
  Model by_hand = make(central(2), other());
  Model known = make(central(2), optimizers::SGD({.learning_rate = 0.1}));
  fit(by_hand);
  fit(known);
  expect_near(by_hand.values(), known.values(), 1e-5);
}

TEST(CentralStorage, TakesLessMemoryThanMirrored) {
  const auto memory = [](const Model& model) {
    const std::string text = model.summary();
    const std::string line = text.substr(text.rfind("replicas: ") + 10);
    return std::stod(line);
  };
  const auto factory = [] { return torch::nn::Sequential(torch::nn::Linear(1024, 1024)); };
  const double one = central(4).scope([&] { return memory(Model(factory)); });
  const double many = mirrored(4).scope([&] { return memory(Model(factory)); });
  EXPECT_NEAR(one, 4.0, 0.05);
  EXPECT_NEAR(many, 16.0, 0.1);
}

TEST(CentralStorage, WithOneDeviceIsThatDevice) {
  EXPECT_EQ(central(1).num_replicas_in_sync(), 1);
}

}  // namespace
}  // namespace tandem
