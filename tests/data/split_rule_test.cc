#include "data/split_rule.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/errors.h"
#include "support/oracle.h"
#include "tandem/error.h"
#include "tandem/input_context.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::read_oracle;

using Sizes = std::vector<std::int64_t>;

TEST(SplitRuleTest, CutsABatchInPiecesOfTheSameSizeUntilNothingIsLeft) {
  const auto pieces = [](std::int64_t rows, int replicas) {
    Sizes sizes;
    for (int replica = 0; replica < replicas; ++replica)
      sizes.push_back(rows_of_replica(rows, replicas, replica).size());
    return sizes;
  };
  EXPECT_EQ(pieces(9, 4), (Sizes{3, 3, 3, 0}));
  EXPECT_EQ(pieces(8, 4), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(pieces(5, 4), (Sizes{2, 2, 1, 0}));
  EXPECT_EQ(pieces(1, 3), (Sizes{1, 0, 0}));
  EXPECT_EQ(pieces(0, 2), (Sizes{0, 0}));
  EXPECT_EQ(pieces(7, 1), (Sizes{7}));
}

TEST(SplitRuleTest, GivesTheReplicasTheRowsThatTensorFlowGives) {
  const auto cases = read_oracle("mirrored_split");
  ASSERT_GE(cases.size(), 20u);
  for (const auto& one : cases) {
    const int replicas = one["replicas"];
    const std::int64_t examples = one["examples"];
    const std::int64_t global_batch = one["global_batch"];
    std::int64_t begin = 0;
    for (const auto& step : one["steps"]) {
      const std::int64_t rows = std::min(global_batch, examples - begin);
      for (int replica = 0; replica < replicas; ++replica) {
        const RowRange range = rows_of_replica(rows, replicas, replica);
        Sizes expected(range.size());
        std::iota(expected.begin(), expected.end(), begin + range.begin);
        EXPECT_EQ(step[replica].get<Sizes>(), expected) << one;
      }
      begin += rows;
    }
    EXPECT_EQ(begin, examples);
  }
}

TEST(SplitRuleTest, GivesAWorkerWhatItsReplicasHave) {
  for (std::int64_t rows = 0; rows < 30; ++rows) {
    for (const auto& [workers, replicas] : {std::pair{1, 3}, {2, 1}, {2, 2}, {3, 2}, {4, 3}}) {
      std::int64_t next = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const RowRange range = rows_of_worker(rows, workers, replicas, worker);
        std::int64_t in_replicas = 0;
        for (int local = 0; local < replicas; ++local)
          in_replicas += rows_of_replica(rows, workers * replicas, worker * replicas + local).size();
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.size(), in_replicas);
        next = range.end;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

TEST(SplitRuleTest, GivesEachWorkerTheBatchSizesThatTensorFlowGives) {
  const auto cases = read_oracle("batch_sizes_for_worker");
  ASSERT_GE(cases.size(), 70u);
  for (const auto& one : cases) {
    EXPECT_EQ(batch_sizes_for_worker(one["global_batch"], one["workers"], one["replicas"], one["worker"]),
              one["sizes"].get<Sizes>())
        << one;
  }
  EXPECT_EQ(batch_sizes_for_worker(7, 2, 2, 0), (Sizes{2, 2, 2, 1}));
  EXPECT_EQ(batch_sizes_for_worker(7, 2, 2, 1), (Sizes{2, 1, 2, 2}));
}

TEST(SplitRuleTest, TakesTheWholeGlobalBatchInEveryStep) {
  for (const auto& one : read_oracle("batch_sizes_for_worker")) {
    const int workers = one["workers"];
    const int replicas = one["replicas"];
    for (int step = 0; step < 2 * workers; ++step) {
      std::int64_t rows = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const Sizes sizes = batch_sizes_for_worker(one["global_batch"], workers, replicas, worker);
        for (int local = 0; local < replicas; ++local)
          rows += sizes[(step * replicas + local) % sizes.size()];
      }
      EXPECT_EQ(rows, one["global_batch"]) << one << ", step " << step;
    }
  }
}

TEST(SplitRuleTest, RefusesAReplicaOrWorkerThereIsNot) {
  EXPECT_EQ(message_of<InvalidArgument>([] { rows_of_replica(4, 2, 2); }), "replica 2 of 2: expected 0 to 1");
  EXPECT_EQ(message_of<InvalidArgument>([] { rows_of_worker(4, 2, 1, -1); }),
            "worker -1 of 2: expected 0 to 1");
  EXPECT_THROW(batch_sizes_for_worker(4, 3, 1, 3), InvalidArgument);
}

TEST(InputContextTest, DividesTheGlobalBatchEvenlyOrNotAtAll) {
  const InputContext context{.num_input_pipelines = 2, .input_pipeline_id = 1, .num_replicas_in_sync = 4};
  EXPECT_EQ(context.get_per_replica_batch_size(12), 3);
  EXPECT_EQ(InputContext().get_per_replica_batch_size(12), 12);
  EXPECT_EQ(message_of<InvalidArgument>([&] { context.get_per_replica_batch_size(10); }),
            "the global batch of 10 cannot be divided evenly over 4 replicas: expected a multiple of 4");
  EXPECT_THROW(context.get_per_replica_batch_size(0), InvalidArgument);
  EXPECT_THROW(context.get_per_replica_batch_size(-4), InvalidArgument);
}

}  // namespace
}  // namespace tandem::internal
