#include "strategy/gradient_exchange.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "strategy/strategy_impl.h"
#include "strategy/tasks_in_one_process.h"
#include "strategy/updater.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::run_tasks;

constexpr int kLayers = 4;
constexpr int kSteps = 3;

// loss = sum of c_i w_i over the layers that this replica uses: the gradient of w_i is c_i.
struct Layers {
  std::vector<at::Tensor> weights;

  ReplicaTensors tensors() {
    ReplicaTensors tensors;
    for (int i = 0; i < kLayers; ++i) {
      weights.push_back(torch::full({3 + i}, 1.0, torch::kDouble).set_requires_grad(true));
      tensors.parameters.push_back({"w" + std::to_string(i), weights.back()});
    }
    return tensors;
  }
  at::Tensor loss(int replica, int step) const {
    at::Tensor loss;
    for (int i = 0; i < kLayers; ++i) {
      if (!uses(replica, step, i)) continue;
      const at::Tensor part = (weights[static_cast<std::size_t>(i)] * gradient(replica, step, i)).sum();
      loss = loss.defined() ? loss + part : part;
    }
    return loss;
  }
  // Layer 0 is used by nobody, layer 1 by one replica in each step, the others by all.
  static bool uses(int replica, int step, int layer) { return layer > 1 || (layer == 1 && replica == step); }
  static double gradient(int replica, int step, int layer) { return 1 + replica + 10 * step + 100 * layer; }
};

OptimizerSpec decaying_sgd() {
  return {.make = [](std::vector<std::vector<at::Tensor>> by_group) {
    return std::make_unique<torch::optim::SGD>(
        by_group.front(), torch::optim::SGDOptions(0.001).momentum(0.5).weight_decay(0.1));
  }};
}

// What the weights must be after the steps, by layer.
std::vector<double> expected(int replicas) {
  std::vector<double> weights;
  for (int layer = 0; layer < kLayers; ++layer) {
    double weight = 1;
    double velocity = 0;
    bool first = true;
    for (int step = 0; step < kSteps; ++step) {
      double sum = 0;
      bool any = false;
      for (int replica = 0; replica < replicas; ++replica) {
        if (!Layers::uses(replica, step, layer)) continue;
        sum += Layers::gradient(replica, step, layer);
        any = true;
      }
      if (!any) continue;
      velocity = (first ? 0 : 0.5 * velocity) + sum + 0.1 * weight;
      weight -= 0.001 * velocity;
      first = false;
    }
    weights.push_back(weight);
  }
  return weights;
}

struct Case {
  int tasks;
  int replicas;
  std::size_t bytes_per_pack;
};

class Exchange : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Tasks, Exchange,
                         testing::Values(Case{2, 1, 0}, Case{2, 1, 1}, Case{2, 2, 0}, Case{2, 2, 1},
                                         Case{3, 2, 600}),
                         [](const auto& info) {
                           return fmt::format("{}x{}PacksOf{}", info.param.tasks, info.param.replicas,
                                              info.param.bytes_per_pack);
                         });

TEST_P(Exchange, SumsOverAllReplicasAndLeavesOutWhatNobodyReached) {
  const auto [tasks, replicas, bytes_per_pack] = GetParam();
  const std::vector<double> wanted = expected(tasks * replicas);
  run_tasks(tasks, replicas, {.bytes_per_pack = bytes_per_pack}, [&](Strategy& strategy, int) {
    std::vector<Layers> layers(static_cast<std::size_t>(replicas));
    std::vector<ReplicaTensors> copies;
    for (Layers& mine : layers) copies.push_back(mine.tensors());
    const auto variables = std::make_shared<Variables>(copies, Placement::kMirrored, strategy.impl().tasks());
    const auto updater = strategy.impl().make_updater(variables, decaying_sgd());
    for (int step = 0; step < kSteps; ++step) {
      strategy.run([&](ReplicaContext& replica) {
        updater->begin_step(replica.local_id());
        const at::Tensor loss = layers[static_cast<std::size_t>(replica.local_id())].loss(replica.id(), step);
        loss.backward();
        updater->apply(replica.local_id());
      });
    }
    for (const Layers& mine : layers) {
      for (int i = 0; i < kLayers; ++i) {
        const at::Tensor& weight = mine.weights[static_cast<std::size_t>(i)];
        EXPECT_NEAR(weight.min().item<double>(), wanted[static_cast<std::size_t>(i)], 1e-9) << "layer " << i;
        EXPECT_NEAR(weight.max().item<double>(), wanted[static_cast<std::size_t>(i)], 1e-9) << "layer " << i;
      }
    }
  });
}

TEST(ExchangeTest, CountsAGradientThatComesTwiceAsAnError) {
  const std::string message = message_of<Error>([] {
    run_tasks(2, 1, {.bytes_per_pack = 1}, [](Strategy& strategy, int) {
      Layers layers;
      const auto variables = std::make_shared<Variables>(std::vector<ReplicaTensors>{layers.tensors()},
                                                         Placement::kMirrored, strategy.impl().tasks());
      const auto updater = strategy.impl().make_updater(variables, decaying_sgd());
      strategy.run([&](ReplicaContext& replica) {
        updater->begin_step(replica.local_id());
        layers.loss(0, 0).backward();
        layers.loss(0, 0).backward();
        updater->apply(replica.local_id());
      });
    });
  });
  EXPECT_NE(message.find("came twice"), std::string::npos) << message;
}

TEST(SyncGroupTest, GathersTensorsOfAnyShape) {
  run_tasks(3, 1, {}, [](Strategy& strategy, int rank) {
    SyncGroup& tasks = *strategy.impl().tasks();
    const at::Tensor mine = rank == 1   ? at::Tensor()
                            : rank == 0 ? at::arange(6).view({2, 3})
                                        : at::full({2}, 0.5);
    const auto all = tasks.all_gather_any("test", mine);
    EXPECT_TRUE(all[0].equal(at::arange(6).view({2, 3})));
    EXPECT_FALSE(all[1].defined());
    EXPECT_TRUE(all[2].equal(at::full({2}, 0.5)));
    const auto none = tasks.all_gather_any("nothing", {});
    EXPECT_FALSE(none[0].defined() || none[1].defined() || none[2].defined());
    EXPECT_EQ(tasks.sum("sum", {rank, 10}), (std::vector<std::int64_t>{3, 30}));
  });
}

TEST(SyncGroupTest, SumsTensorsOfDtypesThatDoNotTravel) {
  run_tasks(2, 1, {}, [](Strategy& strategy, int rank) {
    for (const at::ScalarType dtype : {at::kHalf, at::kShort, at::kBFloat16, at::kDouble, at::kByte}) {
      const at::Tensor value = at::full({2, 3}, rank + 1, dtype).t();  // not contiguous
      strategy.impl().tasks()->all_reduce("test", value);
      EXPECT_TRUE(value.eq(3).all().item<bool>()) << c10::toString(dtype);
      EXPECT_EQ(value.scalar_type(), dtype);
    }
    const at::Tensor flags = at::full({1}, rank == 1, at::kBool);
    strategy.impl().tasks()->broadcast("flags", flags);
    EXPECT_FALSE(flags.item<bool>());
  });
}

TEST(SyncGroupTest, TellsTheOthersWhyATaskFailed) {
  std::set<std::string> messages;
  std::mutex mutex;
  run_tasks(2, 1, {}, [&](Strategy& strategy, int rank) {
    try {
      strategy.run([&](ReplicaContext& replica) {
        if (rank == 1) throw InvalidArgument("it is the wrong kind of snow");
        return replica.all_reduce(ReduceOp::kSum, at::ones({1}));
      });
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      messages.insert(error.what());
    }
  });
  EXPECT_EQ(messages, (std::set<std::string>{"it is the wrong kind of snow",
                                             "worker:1 failed at step 0: it is the wrong kind of snow"}));
}

}  // namespace
}  // namespace tandem::internal
