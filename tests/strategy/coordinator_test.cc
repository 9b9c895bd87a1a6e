#include "tandem/coordinator.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <concepts>
#include <random>
#include <set>
#include <thread>

#include "strategy/values_codec.h"
#include "support/closure_hosts.h"
#include "support/errors.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"
#include "tandem/one_device_strategy.h"

namespace tandem {
namespace {

using internal::decode_values;
using internal::encode_values;
using testing_support::message_of;
using testing_support::ThreadCluster;

Strategy one_device() {
  return OneDeviceStrategy("/cpu:0");
}

// A RemoteValue is no argument: that does not even compile.
static_assert(!std::convertible_to<RemoteValue, at::Tensor>);
static_assert(!std::constructible_from<Values, std::initializer_list<RemoteValue>>);

std::vector<at::Tensor> of_every_kind() {
  return {at::scalar_tensor(0.1),
          at::arange(24, at::kFloat).view({2, 3, 4}).transpose(0, 2),
          at::empty({0, 5}, at::kHalf),
          at::tensor({1, -2, 3}, at::kLong),
          at::tensor({1, 0}).to(at::kBool),
          at::tensor({250, 7}).to(at::kByte),
          at::tensor({1.5}).to(at::kBFloat16),
          at::full({3}, 1e300, at::kDouble)};
}

TEST(ClosureValues, AreTheSameOnTheOtherSide) {
  const auto values = of_every_kind();
  const auto there = decode_values("them", encode_values("value", values));
  ASSERT_EQ(there.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(there[i].scalar_type(), values[i].scalar_type());
    EXPECT_EQ(there[i].sizes(), values[i].sizes());
    EXPECT_TRUE(at::equal(there[i], values[i])) << i;
  }
  EXPECT_TRUE(decode_values("them", encode_values("value", {})).empty());
}

TEST(ClosureValues, ThatCannotTravelAreRefusedByName) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              encode_values("value", {at::ones({1}), at::Tensor()});
            }),
            "value 1 is an undefined tensor");
  EXPECT_NE(message_of<InvalidArgument>([] {
              encode_values("value", {at::eye(2).to_sparse()});
            }).find("value 0 is sparse"),
            std::string::npos);
  EXPECT_THROW(encode_values("value", {at::zeros({1}, at::kComplexFloat)}), InvalidArgument);
}

TEST(ClosureValues, BytesThatAreNoneAreRefusedAndNothingElseHappens) {
  const std::string good = encode_values("value", of_every_kind());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(decode_values("it", good.substr(0, size)), InvalidArgument) << size;
  }
  EXPECT_THROW(decode_values("it", good + "x"), InvalidArgument);
  std::string two = encode_values("value", {at::zeros({1}, at::kBool)});
  two.back() = 2;
  EXPECT_NE(message_of<InvalidArgument>([&] { decode_values("it", two); }).find("neither"),
            std::string::npos);
  std::mt19937 random(1);
  int taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (int turns = 1 + static_cast<int>(random() % 4); turns > 0; --turns) {
      bytes[random() % std::min<std::size_t>(bytes.size(), 160)] = static_cast<char>(random());
    }
    try {
      const auto values = decode_values("it", bytes);
      EXPECT_EQ(encode_values("value", values).size(), bytes.size());
      ++taken;
    } catch (const InvalidArgument&) {
    }
  }
  EXPECT_LT(taken, 20'000);
}

// The gradient of a least-squares problem, computed by the workers and added up by the coordinator.
TEST(ClusterCoordinator, WorkersComputeWithTensorsAndTheCoordinatorHasTheirResults) {
  ThreadCluster cluster(
      3,
      [](ClusterCoordinator& coordinator) {
        coordinator.add_function("gradient", [](ClosureContext& context, const Values& arguments) {
          EXPECT_EQ(context.num_workers(), 3);
          const at::Tensor w = arguments[0].clone().requires_grad_();
          const at::Tensor loss = (arguments[1].matmul(w) - arguments[2]).square().sum();
          loss.backward();
          return Values{w.grad(), loss.detach(), at::scalar_tensor(context.worker(), at::kInt)};
        });
      },
      one_device);
  torch::manual_seed(3);
  const at::Tensor w = at::randn({5}, at::kDouble);
  const at::Tensor x = at::randn({60, 8, 5}, at::kDouble);
  const at::Tensor y = at::randn({60, 8}, at::kDouble);
  std::vector<RemoteValue> parts;
  for (int i = 0; i < 60; ++i) {
    parts.push_back(cluster.coordinator->schedule("gradient", {w, x[i], y[i]}));
  }
  cluster.coordinator->join();
  EXPECT_TRUE(cluster.coordinator->done());
  at::Tensor sum = at::zeros({5}, at::kDouble);
  for (int i = 0; i < 60; ++i) {
    EXPECT_TRUE(parts[static_cast<std::size_t>(i)].done());
    const Values part = cluster.coordinator->fetch(parts[static_cast<std::size_t>(i)]);
    ASSERT_EQ(part.size(), 3u);
    sum += part[0];
    EXPECT_TRUE(at::allclose(part[1], (x[i].matmul(w) - y[i]).square().sum()));
  }
  const at::Tensor residual = x.view({-1, 5}).matmul(w) - y.view({-1});
  EXPECT_TRUE(at::allclose(sum, 2 * x.view({-1, 5}).t().matmul(residual)));
}

TEST(ClusterCoordinator, ArgumentsAreThoseOfTheMomentOfSchedule) {
  ThreadCluster cluster(
      1,
      [](ClusterCoordinator& coordinator) {
        coordinator.add_function("same", [](ClosureContext&, const Values& arguments) { return arguments; });
      },
      one_device);
  const at::Tensor changing = at::zeros({1000});
  std::vector<RemoteValue> values;
  for (int i = 0; i < 20; ++i) {
    values.push_back(cluster.coordinator->schedule("same", {changing}));
    changing.add_(1);
  }
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)].fetch()[0][999].item<float>(), i);
}

TEST(ClusterCoordinator, EachWorkerPassesOverADatasetOfItsOwnCutForItsReplicas) {
  std::atomic<int> made{0};
  ThreadCluster cluster(
      2,
      [&](ClusterCoordinator& coordinator) {
        coordinator.add_function("rows", [](ClosureContext& context, const Values&) {
          const DistributedBatch batch = context.next("numbers");
          EXPECT_EQ(batch.size(), 2u);
          EXPECT_EQ(batch.global_rows(), 4);
          return Values{at::cat({batch[0].x.tensor(), batch[1].x.tensor()}),
                        at::scalar_tensor(context.worker(), at::kInt)};
        });
        coordinator.create_per_worker_dataset("numbers", [&](const InputContext& context) {
          ++made;
          EXPECT_EQ(context.num_input_pipelines, 2);
          EXPECT_EQ(context.num_replicas_in_sync, 2);
          return Dataset::from_tensors(at::arange(40))
              .shard(context.num_input_pipelines, context.input_pipeline_id)
              .batch(4);
        });
      },
      []() -> Strategy {
        return MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}});
      });
  std::vector<RemoteValue> values;
  for (int i = 0; i < 5; ++i) values.push_back(cluster.coordinator->schedule("rows"));
  cluster.coordinator->join();
  std::map<int, int> batches;  // by worker
  for (const RemoteValue& value : values) {
    const Values rows = value.fetch();
    const int worker = rows[1].item<int>();
    const int first = batches[worker]++ * 8 + worker;
    EXPECT_TRUE(at::equal(rows[0], at::arange(first, first + 8, 2)));
  }
  EXPECT_LE(made, 2);

  // At the end of the data the closure fails, and says where.
  std::string error;
  try {
    for (int i = 0; i < 20; ++i) cluster.coordinator->schedule("rows");
    cluster.coordinator->join();
  } catch (const OutOfRange& thrown) {
    error = thrown.what();
  }
  EXPECT_EQ(error.find("worker:"), 0u) << error;
  EXPECT_NE(error.find("(rows): dataset \"numbers\" has no more batches"), std::string::npos) << error;
  EXPECT_TRUE(cluster.coordinator->done());
}

TEST(ClusterCoordinator, WorkersReadTheSameDataInOrdersOfTheirOwn) {
  // A worker runs one closure at a time: two that wait for each other are on different ones.
  std::atomic<int> begun{0};
  ThreadCluster cluster(
      2,
      [&begun](ClusterCoordinator& coordinator) {
        coordinator.add_function("epoch", [&begun](ClosureContext& context, const Values&) -> Values {
          ++begun;
          const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
          while (begun < 2 && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          at::Tensor rows = at::empty({0}, at::kLong);
          while (const auto batch = context.next_as_optional("numbers")) {
            rows = at::cat({rows, (*batch)[0].x.tensor()});
          }
          return {rows};
        });
        coordinator.create_per_worker_dataset("numbers", [](const InputContext&) {
          return Dataset::from_tensors(at::arange(64)).shuffle(64).batch(10);
        });
      },
      one_device);
  const RemoteValue one = cluster.coordinator->schedule("epoch");
  const RemoteValue other = cluster.coordinator->schedule("epoch");
  const std::vector<at::Tensor> orders{one.fetch().at(0), other.fetch().at(0)};
  for (const at::Tensor& order : orders) EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(64)));
  EXPECT_FALSE(at::equal(orders[0], orders[1]));
}

TEST(ClusterCoordinator, AnErrorOfLibtorchComesBackAsOneLineWithoutItsStack) {
  ThreadCluster cluster(
      1,
      [](ClusterCoordinator& coordinator) {
        coordinator.add_function("add", [](ClosureContext&, const Values& arguments) {
          return Values{arguments.at(0) + arguments.at(1)};
        });
        coordinator.add_function("nothing",
                                 [](ClosureContext&, const Values&) { return Values{at::Tensor()}; });
      },
      one_device);
  cluster.coordinator->schedule("add", {at::ones({2}), at::ones({3})});
  std::string error = message_of<Error>([&] { cluster.coordinator->join(); });
  EXPECT_EQ(error.find("worker:0: closure 1 (add): The size of tensor a (2) must match"), 0u) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_EQ(error.find("frame #"), std::string::npos);
  cluster.coordinator->schedule("nothing");
  error = message_of<InvalidArgument>([&] { cluster.coordinator->join(); });
  EXPECT_EQ(error, "worker:0: closure 2 (nothing): result 0 is an undefined tensor");
  EXPECT_EQ(cluster.coordinator->schedule("add", {at::ones({2}), at::ones({2})}).fetch()[0][0].item<int>(),
            2);
}

TEST(ClusterCoordinator, PushesBelongToTheClosureWhileItRuns) {
  ThreadCluster cluster(
      1,
      [](ClusterCoordinator& coordinator) {
        coordinator.add_function("f", [](ClosureContext&, const Values& arguments) {
          if (!arguments.empty()) throw Unavailable("ps 0 is gone");
          return arguments;
        });
      },
      one_device);
  cluster.coordinator->schedule("f").fetch();
  cluster.coordinator->schedule("f", {at::ones({1})});
  EXPECT_EQ(message_of<Unavailable>([&] { cluster.coordinator->join(); }),
            "worker:0: closure 2 (f): ps 0 is gone");
  cluster.coordinator->schedule("f").fetch();
  cluster.coordinator.reset();
  cluster.wait_for_worker(0);
  EXPECT_EQ(cluster.host(0).closures_set, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{
                                              {1, 1}, {0, 0}, {2, 2}, {0, 0}, {3, 3}, {0, 0}}));
}

TEST(ClusterCoordinator, AWorkerOfACoordinatorThatFailsFailsToo) {
  ThreadCluster cluster(
      1,
      [](ClusterCoordinator& coordinator) {
        coordinator.add_function("f", [](ClosureContext&, const Values&) { return Values{}; });
      },
      one_device);
  EXPECT_THROW(
      {
        const auto coordinator = std::move(cluster.coordinator);
        throw DataLoss("a checkpoint is damaged");
      },
      DataLoss);
  EXPECT_THROW(cluster.wait_for_worker(0), Aborted);
}

TEST(ClusterCoordinator, SaysWhatIsWrongWithHowItIsUsed) {
  EXPECT_NE(message_of<InvalidArgument>([] {
              ClusterCoordinator coordinator(one_device());
            }).find("needs a ParameterServerStrategy"),
            std::string::npos);
  EXPECT_THROW(RemoteValue().fetch(), FailedPrecondition);

  ThreadCluster cluster(
      1,
      [](ClusterCoordinator& coordinator) {
        coordinator.add_function("f", [](ClosureContext& context, const Values&) {
          context.next("nothing");
          return Values{};
        });
        if (coordinator.is_coordinator()) return;
        EXPECT_THROW(coordinator.schedule("f"), FailedPrecondition);
        EXPECT_THROW(coordinator.join(), FailedPrecondition);
        EXPECT_THROW(coordinator.done(), FailedPrecondition);
      },
      one_device);
  ClusterCoordinator& coordinator = *cluster.coordinator;
  EXPECT_THROW(coordinator.serve(), FailedPrecondition);
  EXPECT_EQ(message_of<NotFound>([&] { coordinator.schedule("g"); }),
            "there is no function \"g\": there are [f]; add_function() on every task");
  const ClusterCoordinator::Function same = [](ClosureContext&, const Values& values) { return values; };
  EXPECT_THROW(coordinator.add_function("f", same), InvalidArgument);
  EXPECT_THROW(coordinator.add_function("", same), InvalidArgument);
  EXPECT_THROW(coordinator.add_function("h", nullptr), InvalidArgument);
  EXPECT_THROW(coordinator.schedule("f", {at::Tensor()}), InvalidArgument);
  coordinator.schedule("f");
  EXPECT_NE(message_of<NotFound>([&] { coordinator.join(); }).find("no dataset \"nothing\""),
            std::string::npos);
  // A function that only the coordinator has.
  coordinator.add_function("late", same);
  EXPECT_EQ(message_of<NotFound>([&] { coordinator.join(); }),
            "worker:0 has no function \"late\": add_function() on every task, before serve()");
}

}  // namespace
}  // namespace tandem
