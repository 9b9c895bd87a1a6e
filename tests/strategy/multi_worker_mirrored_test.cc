// What needs no second task; tests/multi_worker has the rest.
#include "tandem/multi_worker_mirrored_strategy.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/errors.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using testing_support::message_of;

ResolvedCluster cluster_with(const TaskId& task) {
  return {
      .cluster = ClusterSpec(
          {{"worker", {"localhost:21999"}}, {"ps", {"localhost:21998"}}, {"evaluator", {"localhost:21997"}}}),
      .task = task};
}

TEST(MultiWorkerMirrored, TrainsAloneWithoutACluster) {
  const MultiWorkerMirroredStrategy strategy({.cluster = ResolvedCluster(), .seed = 7});
  EXPECT_EQ(strategy.name(), "multi_worker_mirrored");
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  EXPECT_EQ(strategy.worker_devices().front().name(), "/cpu:0");
  EXPECT_TRUE(strategy.is_chief());
  EXPECT_EQ(strategy.communicator(), nullptr);
}

TEST(MultiWorkerMirrored, TrainsAloneAsTheOnlyWorkerOrTheEvaluator) {
  for (const TaskId& task : {TaskId{"worker", 0}, TaskId{"evaluator", 0}}) {
    const MultiWorkerMirroredStrategy strategy(
        {.cluster = cluster_with(task), .devices = {"/cpu:0", "/cpu:1"}});
    EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
    EXPECT_TRUE(strategy.is_chief());
    EXPECT_EQ(strategy.communicator(), nullptr);
  }
}

TEST(MultiWorkerMirrored, IsNotForParameterServers) {
  EXPECT_NE(message_of<InvalidArgument>([] {
              const MultiWorkerMirroredStrategy strategy({.cluster = cluster_with({"ps", 0})});
            }).find("ps:0 is a parameter server"),
            std::string::npos);
}

TEST(MultiWorkerMirrored, RefusesWhatCannotWorkBeforeItWaitsForOthers) {
  const ResolvedCluster two{.cluster = ClusterSpec({{"worker", {"localhost:21996", "localhost:21995"}}}),
                            .task = TaskId{"worker", 0}};
  EXPECT_THROW(MultiWorkerMirroredStrategy({.cluster = two, .threads_per_replica = -1}), InvalidArgument);
  EXPECT_THROW(MultiWorkerMirroredStrategy({.cluster = two, .devices = {"/cpu:0", "/cpu:0"}}),
               InvalidArgument);
  ResolvedCluster nobody = two;
  nobody.task.reset();
  EXPECT_THROW(MultiWorkerMirroredStrategy({.cluster = nobody}), InvalidArgument);
}

TEST(MultiWorkerMirrored, HasTensorFlowsOldSignature) {
  const experimental::MultiWorkerMirroredStrategy strategy(experimental::CollectiveCommunication::kNccl,
                                                           {.cluster = ResolvedCluster()});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
}

// One task needs no other to take one element per replica and step.
TEST(DistributeFromFunction, TakesOneElementPerReplica) {
  const MultiWorkerMirroredStrategy strategy({.cluster = ResolvedCluster(), .devices = {"/cpu:0", "/cpu:1"}});
  auto batches = strategy.distribute_from_function([](const InputContext& context) {
    EXPECT_EQ(context.num_input_pipelines, 1);
    EXPECT_EQ(context.num_replicas_in_sync, 2);
    return Dataset::from_tensors(at::arange(5)).batch(context.get_per_replica_batch_size(4));
  });
  const DistributedBatch first = batches.next();
  EXPECT_EQ(first.global_rows(), 4);
  EXPECT_TRUE(first[1].x.tensor().equal(at::arange(2, 4)));
  EXPECT_EQ(batches.position().element, 2);
  const DistributedBatch last = batches.next();
  EXPECT_EQ(last.global_rows(), 1);
  EXPECT_EQ(last[0].rows(), 1);
  EXPECT_EQ(last[1].rows(), 0);
  EXPECT_FALSE(batches.next_as_optional());
  batches.seek({.epoch = 0, .element = 2});
  EXPECT_EQ(batches.next().global_rows(), 1);
}

TEST(Gather, JoinsTheReplicasInOrder) {
  const MultiWorkerMirroredStrategy strategy({.cluster = ResolvedCluster(), .devices = {"/cpu:0", "/cpu:1"}});
  const auto values = strategy.run([](ReplicaContext& replica) {
    return at::full({replica.id() + 1, 2}, replica.id());
  });
  EXPECT_EQ(strategy.gather(values).size(0), 3);
  const auto scalars = strategy.run([](ReplicaContext&) { return at::scalar_tensor(1); });
  EXPECT_THROW(strategy.gather(scalars), InvalidArgument);
}

}  // namespace
}  // namespace tandem
