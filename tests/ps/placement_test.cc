#include "tandem/placement.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>

#include "support/errors.h"
#include "support/oracle.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using testing_support::message_of;
using testing_support::read_oracle;

int bytes_of(const std::string& dtype) {
  return std::map<std::string, int>{{"float16", 2}, {"float32", 4}, {"float64", 8}}.at(dtype);
}

Partitioner partitioner_of(const nlohmann::json& one) {
  const auto& args = one["args"];
  const std::string kind = one["kind"];
  if (kind == "fixed") return FixedShardsPartitioner(args["num_shards"]);
  if (kind == "min") return MinSizePartitioner(args["min_shard_bytes"], args["max_shards"]);
  std::optional<std::int64_t> most;
  if (!args["max_shards"].is_null()) most = args["max_shards"].get<std::int64_t>();
  return MaxSizePartitioner(args["max_shard_bytes"], most);
}

TEST(PartitionerOracle, EveryCaseIsCutAsTensorFlowCutsIt) {
  const auto cases = read_oracle("partitioners");
  ASSERT_GE(cases.size(), 60u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one.dump());
    const auto shape = one["shape"].get<std::vector<std::int64_t>>();
    EXPECT_EQ(partitioner_of(one)(shape, bytes_of(one["dtype"])),
              one["parts"]["ok"].get<std::vector<std::int64_t>>());
  }
}

TEST(ReplicaDeviceSetterOracle, EveryVariableGoesWhereTensorFlowPutsIt) {
  const auto cases = read_oracle("replica_device_setter");
  ASSERT_GE(cases.size(), 20u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one.dump());
    const int ps = one["ps"];
    const bool greedy = one["kind"] == "greedy by bytes";
    auto place = replica_device_setter(
        {.ps_tasks = ps, .ps_strategy = greedy ? PsStrategy(GreedyLoadBalancing(ps)) : PsStrategy()});
    ASSERT_TRUE(place);
    for (std::size_t i = 0; i < one["shapes"].size(); ++i) {
      const auto shape = one["shapes"][i].get<std::vector<std::uint64_t>>();
      const std::uint64_t bytes = std::accumulate(shape.begin(), shape.end(),
                                                  std::uint64_t(bytes_of(one["dtype"])), std::multiplies());
      EXPECT_EQ(place({.name = "v", .bytes = bytes}), one["devices"][i].get<std::string>()) << i;
    }
  }
}

TEST(ReplicaDeviceSetter, CountsThePsTasksOfACluster) {
  const ClusterSpec cluster({{"ps", {"a:1", "b:1"}}, {"worker", {"c:1"}}});
  auto place = replica_device_setter({.cluster = cluster});
  EXPECT_EQ(place({.name = "a"}), "/job:ps/task:0");
  EXPECT_EQ(place({.name = "b"}), "/job:ps/task:1");
  EXPECT_EQ(place({.name = "c"}), "/job:ps/task:0");
  EXPECT_EQ(place.worker(), "/job:worker");
}

TEST(ReplicaDeviceSetter, TellsAStrategyWhichTaskAVariableGoesTo) {
  const ClusterSpec cluster({{"ps", {"a:1", "b:1"}}, {"worker", {"c:1"}}});
  PsStrategy task_of = replica_device_setter({.cluster = cluster});
  EXPECT_EQ(task_of({.name = "a"}), 0);
  EXPECT_EQ(task_of({.name = "b"}), 1);
  EXPECT_EQ(task_of({.name = "c", .device = "/gpu:1"}), 0);
  EXPECT_EQ(message_of<InvalidArgument>([&] { task_of({.name = "d", .device = "/job:worker/task:0"}); }),
            "replica_device_setter puts variable \"d\" on \"/job:worker/task:0\": expected a ps task, which "
            "keeps it for all workers");
  PsStrategy nowhere = replica_device_setter({});
  EXPECT_THROW(nowhere({.name = "a"}), InvalidArgument);
}

TEST(ReplicaDeviceSetter, UsesThePsTasksThatThereAreOfASparseJob) {
  const ClusterSpec cluster({{"ps", JobTasks(std::map<int, std::string>{{1, "a:1"}, {4, "b:1"}})}});
  auto place = replica_device_setter({.cluster = cluster});
  EXPECT_EQ(place({.name = "a"}), "/job:ps/task:1");
  EXPECT_EQ(place({.name = "b"}), "/job:ps/task:4");
}

TEST(ReplicaDeviceSetter, LeavesEverythingWhereItIsWithoutPsTasks) {
  for (auto place : {replica_device_setter({}),
                     replica_device_setter({.ps_tasks = 3, .cluster = ClusterSpec({{"worker", {"a:1"}}})})}) {
    EXPECT_FALSE(place);
    EXPECT_EQ(place({.name = "a", .device = "/gpu:1"}), "/gpu:1");
    EXPECT_EQ(place({.name = "a"}), "");
    EXPECT_EQ(place.worker("/cpu:0"), "/cpu:0");
  }
}

// Expected values: TensorFlow's rules for merging device names.
TEST(ReplicaDeviceSetter, TheInnerScopeWins) {
  auto place = replica_device_setter({.ps_tasks = 3, .worker_device = "/job:worker/task:7"});
  EXPECT_EQ(place({.name = "a", .device = "/gpu:1"}), "/job:ps/task:0/device:GPU:1");
  EXPECT_EQ(place({.name = "b", .device = "/device:CPU:0"}), "/job:ps/task:1/device:CPU:0");
  EXPECT_EQ(place({.name = "c", .device = "/task:0"}),
            "/job:ps/task:0");  // it was the turn of 2 all the same
  EXPECT_EQ(place({.name = "d"}), "/job:ps/task:0");
  EXPECT_EQ(place({.name = "e", .device = "/job:worker/task:1"}), "/job:worker/task:1");
  EXPECT_EQ(place({.name = "f"}), "/job:ps/task:1") << "a variable of another job takes nobody's turn";
  EXPECT_EQ(place.worker("gpu:0"), "/job:worker/task:7/device:GPU:0");
  EXPECT_EQ(place.worker("/job:chief/task:0"), "/job:chief/task:0");
}

TEST(ReplicaDeviceSetter, WithoutMergingAScopeOfItsOwnIsAll) {
  auto place = replica_device_setter({.ps_tasks = 2, .merge_devices = false});
  EXPECT_EQ(place({.name = "a", .device = "/cpu:0"}), "/cpu:0");
  EXPECT_EQ(place({.name = "b"}), "/job:ps/task:0");
}

TEST(ReplicaDeviceSetter, OnlyAJobGetsATask) {
  auto place = replica_device_setter({.ps_tasks = 2, .ps_device = "/cpu:0", .worker_device = ""});
  EXPECT_EQ(place({.name = "a"}), "/device:CPU:0");
  EXPECT_EQ(place.worker(), "");
}

TEST(ReplicaDeviceSetter, RefusesWhatIsWrongInOneLine) {
  const auto refused = [](const ReplicaDeviceSetterOptions& options, const std::string& device = "") {
    return message_of<InvalidArgument>(
        [&] { replica_device_setter(options)({.name = "w", .device = device}); });
  };
  EXPECT_EQ(refused({.ps_tasks = -1}), "ps_tasks is -1: expected a number from 0");
  EXPECT_EQ(refused({.ps_tasks = 1, .ps_device = "ps"}),
            "\"ps\" is not a device name or part of one: expected e.g. \"/job:ps\", \"/job:ps/task:1\" or "
            "\"/gpu:0\"");
  for (const char* device :
       {"/job:", "/job:a/job:b", "/task:-1", "/task:x", "//", "/tpu:0", "/cpu:0/gpu:0"}) {
    EXPECT_NE(refused({.ps_tasks = 1}, device).find("is not a device name"), std::string::npos) << device;
  }
  EXPECT_EQ(refused({.ps_tasks = 2, .ps_strategy = [](const VariableToPlace&) { return 2; }}),
            "ps_strategy puts variable \"w\" on ps task 2: expected a number from 0 to 1");
}

TEST(GreedyLoadBalancing, TakesAnyLoad) {
  GreedyLoadBalancing by_name(2, [](const VariableToPlace& v) { return static_cast<double>(v.name.size()); });
  EXPECT_EQ(by_name({.name = "long"}), 0);
  EXPECT_EQ(by_name({.name = "a"}), 1);
  EXPECT_EQ(by_name({.name = "b"}), 1);
  GreedyLoadBalancing wrong(2,
                            [](const VariableToPlace&) { return std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_EQ(message_of<InvalidArgument>([&] { wrong({.name = "w"}); }),
            "the load of variable \"w\" is nan: expected a finite number from 0");
}

TEST(PsStrategies, ACopyGoesOnFromWhereTheOriginalWas) {
  RoundRobin first(3);
  first({});
  RoundRobin second = first;
  EXPECT_EQ(first({}), 1);
  EXPECT_EQ(second({}), 1);
}

TEST(Partitioners, NeverCutScalarsAndEmptyVariables) {
  for (const Partitioner& cut : {Partitioner(FixedShardsPartitioner(4)),
                                 Partitioner(MinSizePartitioner(1, 4)), Partitioner(MaxSizePartitioner(1))}) {
    EXPECT_EQ(cut({}, 4), std::vector<std::int64_t>{});
    EXPECT_EQ(cut({0, 3}, 4), (std::vector<std::int64_t>{1, 1}));
    EXPECT_EQ(cut({3, 0}, 4)[1], 1);
  }
}

TEST(Partitioners, StaySensibleForSizesThatCannotBeCounted) {
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(MinSizePartitioner(1 << 20, 8)({huge, huge}, 8), (std::vector<std::int64_t>{8, 1}));
  EXPECT_EQ(MaxSizePartitioner(1 << 20, 8)({huge, huge}, 8), (std::vector<std::int64_t>{8, 1}));
}

TEST(Partitioners, RefuseWhatIsWrong) {
  EXPECT_EQ(message_of<InvalidArgument>([] { FixedShardsPartitioner(0); }),
            "num_shards is 0: expected at least 1");
  EXPECT_EQ(message_of<InvalidArgument>([] { MinSizePartitioner(0); }),
            "min_shard_bytes is 0: expected at least 1");
  EXPECT_EQ(message_of<InvalidArgument>([] { MaxSizePartitioner(1, 0); }),
            "max_shards is 0: expected at least 1");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              FixedShardsPartitioner(2)({2, -1}, 4);
            }),
            "a variable cannot have the shape [2, -1]: expected sizes from 0");
}

}  // namespace
}  // namespace tandem
