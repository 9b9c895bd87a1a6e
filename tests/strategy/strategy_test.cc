#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tandem/central_storage_strategy.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"
#include "tandem/one_device_strategy.h"

namespace tandem {
namespace {

// What holds for one strategy holds for all.
struct Case {
  const char* name;
  Strategy (*make)();
  int replicas;
};

const Case kCases[] = {
    {"Default", [] { return Strategy(); }, 1},
    {"OneDevice", []() -> Strategy { return OneDeviceStrategy("/cpu:0"); }, 1},
    {"Mirrored2",
     []() -> Strategy {
       return MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}});
     },
     2},
    {"Mirrored4",
     []() -> Strategy {
       return MirroredStrategy({.devices = {"/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"}});
     },
     4},
    {"MirroredToOneDevice3",
     []() -> Strategy {
       return MirroredStrategy(
           {.devices = {"/cpu:0", "/cpu:1", "/cpu:2"}, .cross_device_ops = reduction_to_one_device()});
     },
     3},
    {"CentralStorage2",
     []() -> Strategy {
       return CentralStorageStrategy({.compute_devices = {"/cpu:0", "/cpu:1"}});
     },
     2},
};

class EveryStrategy : public testing::TestWithParam<Case> {
 protected:
  const Strategy strategy_ = GetParam().make();
  const double n_ = GetParam().replicas;
};

INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategy, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(EveryStrategy, CallsTheFunctionOncePerReplicaWithItsOwnArgument) {
  std::vector<int> numbers;
  for (int i = 0; i < n_; ++i) numbers.push_back(10 * i);
  const auto results = strategy_.run(
      [](ReplicaContext& replica, int mine, const std::string& shared) {
        EXPECT_EQ(shared, "same");
        return mine + replica.id();
      },
      PerReplica<int>(numbers), std::string("same"));
  ASSERT_EQ(results.size(), static_cast<std::size_t>(n_));
  for (int i = 0; i < n_; ++i) EXPECT_EQ(results[i], 11 * i);
  EXPECT_EQ(strategy_.num_replicas_in_sync(), n_);
}

TEST_P(EveryStrategy, ReducesToTheSumAndTheMeanOverReplicas) {
  const auto values =
      strategy_.run([](ReplicaContext& replica) { return torch::full({2}, replica.id() + 1.0); });
  EXPECT_TRUE(strategy_.reduce(ReduceOp::kMean, values).equal(torch::full({2}, (n_ + 1) / 2)));
  EXPECT_TRUE(strategy_.reduce(ReduceOp::kSum, values).equal(torch::full({2}, n_ * (n_ + 1) / 2)));
}

TEST_P(EveryStrategy, GathersTensorsOfDifferentLengths) {
  const auto results = strategy_.run([](ReplicaContext& replica) {
    const at::Tensor mine = torch::full({replica.id() + 1, 2}, replica.id() + 1.0).set_requires_grad(true);
    const at::Tensor all = replica.all_gather(mine);
    // Each replica gets back what all of them made of its part.
    (all * (replica.id() + 1)).sum().backward();
    return std::pair(all.detach(), mine.grad());
  });
  std::vector<at::Tensor> rows;
  for (int i = 0; i < n_; ++i) rows.push_back(torch::full({i + 1, 2}, i + 1.0));
  for (int i = 0; i < n_; ++i) {
    EXPECT_TRUE(results[i].first.equal(torch::cat(rows)));
    EXPECT_TRUE(results[i].second.equal(torch::full({i + 1, 2}, n_ * (n_ + 1) / 2)));
  }
  EXPECT_THROW(strategy_.run([](ReplicaContext& replica) { return replica.all_gather(torch::ones({})); }),
               InvalidArgument);
}

TEST_P(EveryStrategy, MergesTheReplicasIntoOneCall) {
  int calls = 0;
  const auto results = strategy_.run([&](ReplicaContext& replica) {
    const auto merge = [&](const Strategy& strategy, const PerReplica<at::Tensor>& values,
                           const PerReplica<std::string>& names) {
      ++calls;
      EXPECT_TRUE(in_cross_replica_context());
      EXPECT_TRUE(strategy == strategy_);
      EXPECT_EQ(names[names.size() - 1], std::to_string(names.size() - 1));
      std::vector<double> sums(values.size(), strategy.reduce(ReduceOp::kSum, values).item<double>());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += 100.0 * static_cast<double>(i);
      return PerReplica(sums);
    };
    EXPECT_FALSE(in_cross_replica_context());
    const double mine = replica.merge_call(merge, torch::tensor(1.0), std::to_string(replica.id()));
    const int same = replica.merge_call([](const Strategy&) { return 7; });
    replica.merge_call([&](const Strategy&, const PerReplica<int>&) { ++calls; }, 1);
    return std::pair(mine, same);
  });
  EXPECT_EQ(calls, 2);
  for (int i = 0; i < n_; ++i) EXPECT_EQ(results[i], std::pair(n_ + 100.0 * i, 7));
}

TEST_P(EveryStrategy, RethrowsWhatAMergedCallThrows) {
  EXPECT_THROW(strategy_.run([](ReplicaContext& replica) {
    replica.merge_call([](const Strategy&) { throw NotFound("nothing"); });
  }),
               NotFound);
}

TEST_P(EveryStrategy, MakesAValueForEachReplica) {
  const auto values = strategy_.distribute_values_from_function([](const ValueContext& context) {
    return context.replica_id_in_sync_group * 10 + context.num_replicas_in_sync;
  });
  for (int i = 0; i < n_; ++i) EXPECT_EQ(values[i], 10 * i + n_);
  EXPECT_EQ(experimental::experimental_local_results(strategy_, values).size(), static_cast<std::size_t>(n_));
}

TEST_P(EveryStrategy, AveragesAlongAnAxisOverAllElementsNotOverMeans) {
  // Replica i has i + 1 rows of value i.
  const auto values = strategy_.run([](ReplicaContext& replica) {
    return torch::full({replica.id() + 1, 3}, replica.id(), torch::kDouble);
  });
  double sum = 0;
  double count = 0;
  for (int i = 0; i < n_; ++i) {
    sum += i * (i + 1);
    count += i + 1;
  }
  EXPECT_TRUE(
      strategy_.reduce(ReduceOp::kMean, values, 0).allclose(torch::full({3}, sum / count, torch::kDouble)));
  EXPECT_TRUE(strategy_.reduce(ReduceOp::kSum, values, 0).equal(torch::full({3}, sum, torch::kDouble)));
}

TEST_P(EveryStrategy, AllReducesInsideAReplica) {
  const auto sums = strategy_.run([](ReplicaContext& replica) {
    return replica.all_reduce(ReduceOp::kSum, torch::full({5}, replica.id() + 1.0));
  });
  const auto means = strategy_.run([](ReplicaContext& replica) {
    return replica.all_reduce(ReduceOp::kMean, torch::full({5}, replica.id() + 1.0));
  });
  for (int i = 0; i < n_; ++i) {
    EXPECT_TRUE(sums[i].equal(torch::full({5}, n_ * (n_ + 1) / 2)));
    EXPECT_TRUE(means[i].equal(torch::full({5}, (n_ + 1) / 2)));
  }
}

TEST_P(EveryStrategy, DifferentiatesThroughAllReduce) {
  // loss_i = (i + 1) sum_j x_j, so the gradient of every x_j is sum_i (i + 1).
  const auto gradients = strategy_.run([](ReplicaContext& replica) {
    const at::Tensor x = torch::full({4}, 1.0 * replica.id(), torch::requires_grad());
    (replica.all_reduce(ReduceOp::kSum, x).sum() * (replica.id() + 1)).backward();
    return x.grad();
  });
  for (int i = 0; i < n_; ++i) EXPECT_TRUE(gradients[i].equal(torch::full({4}, n_ * (n_ + 1) / 2)));
}

TEST_P(EveryStrategy, GivesTheReplicaContextToWhoeverAsksInside) {
  EXPECT_EQ(get_replica_context(), nullptr);
  strategy_.run([](ReplicaContext& replica) { EXPECT_EQ(get_replica_context(), &replica); });
  EXPECT_EQ(get_replica_context(), nullptr);
}

TEST_P(EveryStrategy, IsCurrentInsideItsScopeAlone) {
  EXPECT_FALSE(has_strategy());
  EXPECT_EQ(get_strategy().num_replicas_in_sync(), 1);
  {
    const auto scope = strategy_.scope();
    EXPECT_TRUE(has_strategy());
    EXPECT_TRUE(get_strategy() == strategy_);
    strategy_.scope([&] { EXPECT_TRUE(get_strategy() == strategy_); });
    EXPECT_TRUE(has_strategy());
  }
  EXPECT_FALSE(has_strategy());
}

TEST_P(EveryStrategy, TellsReplicaFromCrossReplicaContext) {
  EXPECT_TRUE(in_cross_replica_context());
  strategy_.run([](ReplicaContext&) { EXPECT_FALSE(in_cross_replica_context()); });
}

TEST_P(EveryStrategy, ScalesALossByTheRowsOfThePiece) {
  const auto data = Dataset::from_tensors(torch::arange(7, torch::kDouble)).batch(7);
  const auto batch = strategy_.distribute(data).next();
  const auto scaled = strategy_.run(
      [](ReplicaContext& replica, const Batch& piece) {
        return piece.rows() ? replica.scale(piece.x.tensor().mean()) : torch::zeros({}, torch::kDouble);
      },
      batch);
  EXPECT_DOUBLE_EQ(strategy_.reduce(ReduceOp::kSum, scaled).item<double>(), 3.0);
  EXPECT_THROW(strategy_.run([](ReplicaContext& r) { return r.scale(torch::ones({})); }), FailedPrecondition);
}

TEST(Scope, RefusesAnotherStrategyInside) {
  const MirroredStrategy a({.devices = {"/cpu:0", "/cpu:1"}});
  const OneDeviceStrategy b;
  const auto scope = a.scope();
  EXPECT_THROW(static_cast<void>(b.scope()), FailedPrecondition);
}

TEST(Scope, BelongsToTheThread) {
  const OneDeviceStrategy strategy;
  const auto scope = strategy.scope();
  std::thread([] { EXPECT_FALSE(has_strategy()); }).join();
}

TEST(RunWithABatch, RefusesOneOfAnotherStrategy) {
  const MirroredStrategy two({.devices = {"/cpu:0", "/cpu:1"}});
  const auto batch = OneDeviceStrategy().distribute(Dataset::from_tensors(torch::ones({4})).batch(4)).next();
  EXPECT_THROW(two.run([](ReplicaContext&, const Batch&) {}, batch), InvalidArgument);
}

}  // namespace
}  // namespace tandem
