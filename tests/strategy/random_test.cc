#include <gtest/gtest.h>
#include <torch/torch.h>

#include "strategy/replica_random.h"
#include "tandem/mirrored_strategy.h"

namespace tandem {
namespace {

using Draws = std::vector<at::Tensor>;

// Everything random that a model may do in forward.
Draws draw() {
  torch::nn::Dropout dropout(0.5);
  torch::nn::Dropout2d dropout2d(0.5);
  const at::Tensor ones = torch::ones({4, 8, 2, 2});
  return {dropout(ones),
          dropout2d(ones),
          torch::rand({16}),
          torch::randn({16}),
          torch::randint(1000, {16}),
          torch::randperm(50),
          torch::bernoulli(torch::full({64}, 0.5)),
          torch::multinomial(torch::ones({20}), 5),
          torch::empty({16}).exponential_(),
          at::normal(torch::zeros({16}), 1.0),
          torch::rrelu(torch::randn({16}), 0.1, 0.3, true)};
}

bool equal(const Draws& a, const Draws& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return true;
}

TEST(RandomScope, DecidesEveryDrawByItsSeed) {
  const auto with_seed = [](std::uint64_t seed) {
    const internal::RandomScope scope(seed);
    return draw();
  };
  const Draws first = with_seed(3);
  const Draws again = with_seed(3);
  const Draws other = with_seed(4);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(first[i].equal(again[i])) << "draw " << i;
    EXPECT_FALSE(first[i].equal(other[i])) << "draw " << i;
  }
}

TEST(RandomScope, LeavesTheProcessWideGeneratorAlone) {
  torch::manual_seed(1);
  const at::Tensor expected = torch::rand({8});
  torch::manual_seed(1);
  {
    const internal::RandomScope scope(5);
    draw();
  }
  EXPECT_TRUE(torch::rand({8}).equal(expected));
}

TEST(RandomScope, KeepsGradientsFlowingThroughDropout) {
  const internal::RandomScope scope(5);
  const at::Tensor x = torch::ones({100}, torch::requires_grad());
  const at::Tensor y = torch::nn::Dropout(0.5)(x);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));  // 0 or 2, as the mask
}

TEST(ReplicaRandom, IsAFunctionOfSeedStepAndReplica) {
  const MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  const auto run = [&](std::uint64_t seed, std::int64_t step) {
    strategy.seed_random(seed, step);
    return strategy.run([](ReplicaContext&) { return draw(); });
  };
  const auto first = run(1, 10);
  const auto again = run(1, 10);
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(equal(first[r], again[r]));
  EXPECT_FALSE(equal(first[0], first[1]));
  EXPECT_FALSE(equal(first[0], run(1, 11)[0]));
  EXPECT_FALSE(equal(first[0], run(2, 10)[0]));
}

TEST(ReplicaRandom, AdvancesWithEachRun) {
  const MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  strategy.seed_random(1, 10);
  strategy.run([](ReplicaContext&) {});
  const auto second = strategy.run([](ReplicaContext&) { return draw(); });
  strategy.seed_random(1, 11);
  EXPECT_TRUE(equal(second[1], strategy.run([](ReplicaContext&) { return draw(); })[1]));
}

}  // namespace
}  // namespace tandem
