#include "data/own_rows.h"

#include <gtest/gtest.h>

#include <atomic>

#include "data/split_rule.h"
#include "support.h"

namespace tandem::internal {
namespace {

// "0,1" of a batch whose x are numbers.
std::string text_of(const at::Tensor& x) {
  std::string text;
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    text += (i > 0 ? "," : "") + std::to_string(x[i].item<std::int64_t>());
  }
  return text;
}

// What the worker gets if whole batches are made and cut: its rows, and how many the batch has.
std::vector<std::string> cut(const Dataset& dataset, const WorkerRows& place, std::int64_t from = 0,
                             std::int64_t epoch = 0) {
  std::vector<std::string> all;
  auto batches = dataset.iterate({.seed = 3, .epoch = epoch});
  while (const auto batch = batches.next()) {
    const auto [begin, end] =
        rows_of_worker(batch->rows(), place.workers, place.replicas_per_worker, place.worker);
    all.push_back(text_of(batch->slice(begin, end).x) + "/" + std::to_string(batch->rows()));
  }
  all.erase(all.begin(), all.begin() + from);
  return all;
}

std::vector<std::string> own(const Dataset& dataset, const WorkerRows& place, std::int64_t from = 0,
                             std::int64_t epoch = 0) {
  const auto part = own_rows(dataset, place);
  if (!part) return {"nothing"};
  EXPECT_EQ(part->cardinality(), dataset.cardinality());
  EXPECT_EQ(part->batch_size(), dataset.batch_size());
  auto batches = part->iterate({.seed = 3, .epoch = epoch});
  if (from > 0) batches.seek({.epoch = epoch, .element = from});
  std::vector<std::string> all;
  while (const auto batch = batches.next()) {
    all.push_back(text_of(batch->x) + "/" + std::to_string(batches.whole_rows()));
  }
  return all;
}

struct Pipeline {
  const char* name;
  std::function<Dataset()> make;
};

Batch add_noise(Batch batch, ExampleRandom& random) {
  batch.x = batch.x.tensor() * 1000 + random.uniform_int(1000);
  return batch;
}

class OwnRows : public testing::TestWithParam<Pipeline> {};

INSTANTIATE_TEST_SUITE_P(
    Pipelines, OwnRows,
    testing::Values(
        Pipeline{"Batches", [] { return numbers(23).batch(6); }},
        Pipeline{"FullBatches", [] { return numbers(24).batch(6); }},
        Pipeline{"DroppedRemainder", [] { return numbers(23).batch(6, {.drop_remainder = true}); }},
        Pipeline{"OneShortBatch", [] { return numbers(5).batch(6); }},
        Pipeline{"ShuffledAndMapped",
                 [] { return numbers(23).shuffle(23).map(add_noise).batch(6).prefetch(2); }},
        Pipeline{"MappedInParallel",
                 [] {
                   return numbers(50)
                       .shuffle(7)
                       .map(add_noise, {.parallelism = 3})
                       .prefetch(4)
                       .batch(6)
                       .prefetch(1);
                 }},
        Pipeline{"RepeatedBefore", [] { return numbers(7).map(add_noise).repeat(3).batch(6); }},
        Pipeline{"RepeatedAfter", [] { return numbers(7).map(add_noise).batch(6).repeat(3); }},
        Pipeline{"TakenAndSkipped", [] { return numbers(60).skip(1).batch(6).skip(1).take(5).shuffle(5); }},
        Pipeline{"Cached", [] { return numbers(23).cache().map(add_noise).batch(6).cache(); }}),
    [](const auto& info) { return info.param.name; });

TEST_P(OwnRows, AreThoseOfTheWholeBatches) {
  const Dataset dataset = GetParam().make();
  for (const auto& [workers, replicas] : {std::pair{2, 1}, {2, 2}, {3, 1}, {1, 4}}) {
    for (int worker = 0; worker < workers; ++worker) {
      const WorkerRows place{workers, replicas, worker};
      const auto wanted = cut(dataset, place);
      const auto got = own(dataset, place);
      // Of one short batch the last workers have nothing: then nothing can be told.
      if (got == std::vector<std::string>{"nothing"} && wanted.front().starts_with("/")) continue;
      EXPECT_EQ(got, wanted) << workers << "x" << replicas << ", worker " << worker;
      EXPECT_EQ(own(dataset, place), wanted) << "a second pass";
      for (std::int64_t from = 1; from < static_cast<std::int64_t>(wanted.size()); ++from) {
        EXPECT_EQ(own(dataset, place, from), cut(dataset, place, from)) << "from " << from;
      }
    }
  }
}

TEST(OwnRowsTest, OfAnotherEpochAreThatEpochs) {
  const Dataset dataset = numbers(23).shuffle(23).map(add_noise).batch(6);
  const WorkerRows place{2, 1, 1};
  EXPECT_EQ(own(dataset, place, 0, 4), cut(dataset, place, 0, 4));
  EXPECT_NE(own(dataset, place, 0, 4), cut(dataset, place, 0, 0));
}

TEST(OwnRowsTest, MakeNoOthers) {
  for (const int parallelism : {0, 2}) {
    std::atomic<int> made = 0;
    const Dataset dataset = numbers(24)
                                .shuffle(24)
                                .map(
                                    [&](Batch batch) {
                                      ++made;
                                      return batch;
                                    },
                                    {.parallelism = parallelism})
                                .batch(6)
                                .prefetch(2);
    own(dataset, {2, 1, 1});
    EXPECT_EQ(made, 12) << "parallelism " << parallelism;
  }
}

TEST(OwnRowsTest, OfAnEndlessDatasetGoOn) {
  const auto part = own_rows(numbers(5).repeat().batch(4), {2, 1, 1});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->cardinality(), Dataset::kInfinite);
  auto batches = part->iterate();
  batches.seek({.epoch = 0, .element = 1000});
  // Rows 2 and 3 of batch 1000: examples 4002 and 4003 of 0, 1, 2, 3, 4, 0, ...
  EXPECT_EQ(text_of(batches.next()->x), "2,3");
  EXPECT_EQ(batches.whole_rows(), 4);
}

TEST(OwnRowsTest, CannotBeToldOfEverything) {
  const WorkerRows place{2, 1, 0};
  const auto same = [](Batch batch) { return batch; };
  EXPECT_FALSE(own_rows(counted(20).batch(4), place)) << "nobody knows the last batch";
  EXPECT_FALSE(own_rows(numbers(20).batch(4).map(same), place)) << "the map wants whole batches";
  EXPECT_FALSE(own_rows(numbers(20).batch(4).batch(2), place));
  EXPECT_FALSE(own_rows(numbers(20), place)) << "no batches";
  EXPECT_FALSE(own_rows(numbers(20).batch(3), {4, 1, 3})) << "nothing is left for the last worker";
  EXPECT_TRUE(own_rows(counted(20, 20).batch(4), place));
}

}  // namespace
}  // namespace tandem::internal
