#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing_support::distance;
using testing_support::expect_near;
using testing_support::message_of;
using testing_support::mirrored;
using testing_support::Values;

torch::nn::Sequential conv_net(at::ScalarType dtype) {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 6, 3), torch::nn::BatchNorm2d(6), torch::nn::ReLU(),
                            torch::nn::Flatten(), torch::nn::Linear(6 * 36, 5));
  net->to(dtype);
  return net;
}

Dataset pictures(int rows, int side, at::ScalarType dtype) {
  torch::manual_seed(5);
  return Dataset::from_tensors(torch::randn({rows, 3, side, side}).to(dtype), torch::randint(5, {rows}));
}

template <typename Factory>
Model train(const Strategy& strategy, Factory factory, const Dataset& data, double rate, bool sync = true) {
  Model model = strategy.scope([&] {
    Model m(factory, {.seed = 2, .sync_batch_norm = sync});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = rate, .momentum = 0.9}),
               .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
  model.fit(data, {.verbose = Verbose::kSilent});
  return model;
}

TEST(SyncBatchNormTest, ComputesWhatLibtorchsDoesOnOneReplica) {
  torch::manual_seed(1);
  torch::nn::BatchNorm2d plain(4);
  SyncBatchNorm sync(4);
  plain->to(torch::kDouble);
  sync->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : sync->named_parameters())
      item.value().copy_(plain->named_parameters()[item.key()].uniform_());
  }
  const at::Tensor a = torch::randn({6, 4, 3, 3}, torch::kDouble).mul_(10).add_(100).set_requires_grad(true);
  const at::Tensor b = a.detach().clone().set_requires_grad(true);
  const at::Tensor weights = torch::randn({6, 4, 3, 3}, torch::kDouble);
  const at::Tensor expected = plain(a);
  const at::Tensor got = sync(b);
  (expected * weights).sum().backward();
  (got * weights).sum().backward();
  EXPECT_LT(distance(got.detach(), expected.detach()), 1e-12);
  EXPECT_LT(distance(b.grad(), a.grad()), 1e-11);
  for (const auto& item : plain->named_parameters()) {
    EXPECT_LT(distance(sync->named_parameters()[item.key()].grad(), item.value().grad()), 1e-11)
        << item.key();
  }
  for (const auto& item : plain->named_buffers()) {
    EXPECT_LT(distance(sync->named_buffers()[item.key()], item.value()), 1e-12) << item.key();
  }
  plain->eval();
  sync->eval();
  EXPECT_LT(distance(sync(b).detach(), plain(a).detach()), 1e-12);
}

TEST(SyncBatchNormTest, MakesNReplicasEqualOneEvenWithoutRowsOnSome) {
  // 4 full batches of 8 and a last one of 5 rows: over 4 replicas 2, 2, 1 and none.
  const auto data = pictures(37, 8, torch::kDouble).batch(8);
  const auto factory = [] { return conv_net(torch::kDouble); };
  const Values one = train(mirrored(1), factory, data, 0.1).values();
  for (const int replicas : {2, 4}) {
    const Values many = train(mirrored(replicas), factory, data, 0.1).values();
    expect_near(many, one, 1e-9);  // the running statistics too
  }
  // Without it they differ: the test can fail.
  EXPECT_GT(
      distance(train(mirrored(2), factory, data, 0.1, false).values().at("0.weight"), one.at("0.weight")),
      1e-6);
}

TEST(SyncBatchNormTest, WorksAsAModuleOfItsOwn) {
  const auto data = pictures(37, 8, torch::kDouble).batch(8);
  const auto factory = [] {
    torch::nn::Sequential net(torch::nn::Conv2d(3, 6, 3), SyncBatchNorm(6), torch::nn::ReLU(),
                              torch::nn::Flatten(), torch::nn::Linear(6 * 36, 5));
    net->to(torch::kDouble);
    return net;
  };
  const Values one = train(mirrored(1), factory, data, 0.1, false).values();
  expect_near(train(mirrored(4), factory, data, 0.1, false).values(), one, 1e-9);
  const auto central =
      CentralStorageStrategy({.compute_devices = {"/cpu:0", "/cpu:1"}, .threads_per_replica = 1});
  expect_near(train(central, factory, data, 0.1, false).values(), one, 1e-9);
}

TEST(SyncBatchNormTest, MakesResNet20OnNReplicasEqualOneInFloat64) {
  const int steps = 20;
  torch::manual_seed(9);
  const auto data = Dataset::from_tensors(torch::randn({steps * 8, 3, 32, 32}, torch::kDouble),
                                          torch::randint(10, {steps * 8}))
                        .batch(8);
  const auto factory = [] {
    models::ResNetCifar net(20);
    net->to(torch::kDouble);
    return net;
  };
  const Values one = train(mirrored(1, 2), factory, data, 0.01).values();
  for (const int replicas : {2, 4})
    expect_near(train(mirrored(replicas), factory, data, 0.01).values(), one, 1e-9);
}

// One step of plain SGD with rate 1: the difference of the values is the gradient.
Values gradient_of_resnet20(int replicas, const Dataset& data) {
  const auto strategy = mirrored(replicas);
  Model model = strategy.scope([] {
    Model m([] { return models::ResNetCifar(20); }, {.seed = 2, .sync_batch_norm = true});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = 1}),
               .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
  const Values before = model.values();
  model.fit(data, {.verbose = Verbose::kSilent});
  Values change;
  for (const auto& [name, value] : model.values()) {
    if (name.ends_with("weight") || name.ends_with("bias")) change[name] = value - before.at(name);
  }
  return change;
}

// Among the inputs of a batch's ReLUs there are some within rounding of 0, and which side such a one falls on
// may depend on how the batch is split; it then moves the gradient by about 1e-3. In what batches that
// happens depends on the machine's kernels, so several are tried: something wrong with the statistics would
// show in all.
TEST(SyncBatchNormTest, GivesResNet20TheGradientOfOneReplicaInFloat32) {
  constexpr int kBatches = 5;
  constexpr int kRows = 4;
  torch::manual_seed(9);
  for (const int replicas : {2, 4}) {
    int near = 0;
    for (int i = 0; i < kBatches; ++i) {
      const auto data =
          Dataset::from_tensors(torch::randn({kRows, 3, 32, 32}), torch::randint(10, {kRows})).batch(kRows);
      const Values one = gradient_of_resnet20(1, data);
      double worst = 0;
      for (const auto& [name, value] : gradient_of_resnet20(replicas, data)) {
        worst = std::max(worst, distance(value, one.at(name)));
      }
      EXPECT_LT(worst, 0.05) << replicas << " replicas, batch " << i;
      near += worst < 1e-4;
    }
    EXPECT_GE(near, 2) << "of " << kBatches << " batches on " << replicas << " replicas";
  }
}

TEST(SyncBatchNormTest, WakesTheOthersWhenOneReplicaFails) {
  struct FailingImpl : torch::nn::Module {
    FailingImpl() {
      norm = register_module("norm", SyncBatchNorm(2));
      layer = register_module("layer", torch::nn::Linear(2, 3));
    }
    at::Tensor forward(const at::Tensor& x) {
      if (get_replica_context() && get_replica_context()->id() == 1)
        throw std::domain_error("replica 1 is unwell");
      return layer(norm(x));
    }
    SyncBatchNorm norm{nullptr};
    torch::nn::Linear layer{nullptr};
  };
  const auto data = Dataset::from_tensors(torch::randn({6, 2}), torch::randint(3, {6})).batch(6);
  EXPECT_EQ(message_of<std::domain_error>([&] {
              train(
                  mirrored(3), [] { return std::make_shared<FailingImpl>(); }, data, 0.1, false);
            }),
            "replica 1 is unwell");
}

TEST(SyncBatchNormTest, RefusesWhatItCannotNormalise) {
  EXPECT_THROW(SyncBatchNorm(SyncBatchNormOptions{.num_features = 0}), InvalidArgument);
  EXPECT_THROW(SyncBatchNorm(3)(torch::randn({4, 2})), InvalidArgument);
  EXPECT_THROW(SyncBatchNorm(3)(torch::randn({1, 3})), InvalidArgument);
}

}  // namespace
}  // namespace tandem
