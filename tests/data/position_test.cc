#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <limits>

#include "data/auto_shard.h"
#include "data/split_rule.h"
#include "data/support.h"
#include "tandem/dataset.h"
#include "tandem/error.h"

namespace tandem {
namespace {

Batch add_noise(Batch batch, ExampleRandom& random) {
  batch.x = batch.x.tensor() * 1000 + random.uniform_int(1000);
  return batch;
}

// Files on disk for as long as the program runs.
Dataset files(FilesOptions options = {}) {
  static const NumberFiles all({5, 0, 3, 8, 2, 4});
  return all.dataset(std::move(options));
}

Dataset files_of_known_length() {
  return files({.shuffle = true, .count = NumberFiles::count_lines});
}

Dataset part_of(const Dataset& dataset) {
  return internal::auto_shard(dataset.with_auto_shard(AutoShardPolicy::kFile), 2, 0).dataset;
}

// What worker 1 of 2 with 2 replicas each trains on.
Dataset cut_for_worker(const Dataset& dataset) {
  return internal::rebatch(dataset, internal::batch_sizes_for_worker(*dataset.batch_size(), 2, 2, 1));
}

struct Chain {
  const char* name;
  Dataset dataset;
};

void PrintTo(const Chain& chain, std::ostream* out) {
  *out << chain.name;
}

class EveryChain : public testing::TestWithParam<Chain> {};

INSTANTIATE_TEST_SUITE_P(
    Chains, EveryChain,
    testing::Values(
        Chain{"Source", numbers(9)},  //
        Chain{"Shuffle", numbers(9).shuffle(4)},
        Chain{"ShuffleOverMap", numbers(9).map(add_noise).shuffle(4)},
        Chain{"ParallelMap", numbers(40).map(add_noise, {.parallelism = 3})},
        Chain{"Batch", numbers(9).batch(2)},
        Chain{"FullBatches", numbers(9).batch(2, {.drop_remainder = true})},
        Chain{"Repeat", numbers(4).shuffle(4).repeat(3)},
        Chain{"RepeatForEver", numbers(4).repeat().take(11)}, Chain{"Slices", numbers(20).skip(3).take(9)},
        Chain{"Prefetch", numbers(9).prefetch(3)},
        Chain{"MapAfterBatch", numbers(9).batch(2).map(add_noise, {.parallelism = 2})},
        Chain{"Shard", numbers(20).shard(3, 1)}, Chain{"ShuffledShard", numbers(40).shard(3, 2).shuffle(6)},
        Chain{"ShardOfShuffle", numbers(20).shuffle(6).shard(3, 2)},
        Chain{"ShardOverMap", numbers(40).map(add_noise, {.parallelism = 2}).shard(4, 3)},
        Chain{"ShardOfBatches", numbers(21).batch(2).shard(2, 0)},
        Chain{"ShardOfFew", numbers(2).take(2).shard(9, 1)},
        Chain{"Cache", numbers(9).shuffle(9).cache().map(add_noise)},
        Chain{"CacheOfRepeat", numbers(4).map(add_noise).repeat(2).cache().map(add_noise)},
        Chain{"RepeatedCache", numbers(4).cache().shuffle(4).repeat(3)},
        Chain{"CachedBatches", numbers(9).batch(2).cache().prefetch(2)},
        Chain{"ShardOfCache", numbers(20).map(add_noise).cache().shard(3, 1)},
        Chain{"Generator", counted(9, 9).map(add_noise)},
        Chain{"GeneratorOfUnknownLength", counted(9).shuffle(4).batch(2)},
        Chain{"Files", files().map(add_noise)},
        Chain{"ShuffledFiles", files({.shuffle = true}).map(add_noise).shuffle(4)},
        Chain{"FilesOfKnownLength", files_of_known_length().map(add_noise).repeat(2)},
        Chain{"PartOfFiles", part_of(files().map(add_noise).shuffle(6).batch(3))},
        Chain{"CachedPart", part_of(files_of_known_length().cache().map(add_noise).batch(3))},
        Chain{"ShardHint", numbers(9).shard_hint().shuffle(9).map(add_noise)},
        Chain{"Rebatch", cut_for_worker(numbers(40).map(add_noise).batch(7))},
        Chain{"RebatchToNoRows", cut_for_worker(numbers(9).batch(2))},
        Chain{"RebatchThatCouldEndWithNoRows", internal::rebatch(numbers(3).batch(2), {1, 0})},
        Chain{"RebatchToOne", internal::rebatch(numbers(9).batch(2), {1})},
        Chain{"RebatchToAll", internal::rebatch(numbers(9).batch(2), {0, 100})},
        Chain{"RebatchOfMap", cut_for_worker(numbers(40).batch(7).map(add_noise, {.parallelism = 2}))},
        Chain{"RebatchOfRepeat", cut_for_worker(numbers(10).batch(7).repeat(3).prefetch(2))},
        Chain{"RebatchOfSlices", cut_for_worker(numbers(60).batch(7).skip(1).take(5).repeat(2))},
        Chain{"RebatchOfFullBatches",
              cut_for_worker(numbers(20).batch(7, {.drop_remainder = true}).repeat(2))},
        Chain{"RebatchOfCache", cut_for_worker(numbers(40).batch(7).cache().repeat(2))},
        Chain{"RebatchOfShuffle", cut_for_worker(numbers(40).batch(7).shuffle(3))},
        Chain{"RebatchOfShard", cut_for_worker(numbers(40).batch(7).shard(2, 1))},
        Chain{"RebatchedPart", cut_for_worker(part_of(files().map(add_noise).batch(5).prefetch(1)))},
        Chain{"RebatchedPartOfKnownLength",
              cut_for_worker(part_of(files_of_known_length().map(add_noise).batch(5).repeat(2)))},
        Chain{"EveryView", counted(60, 60)
                               .cache()
                               .shard(2, 1)
                               .skip(2)
                               .take(25)
                               .shuffle(10)
                               .map(add_noise, {.parallelism = 2})
                               .repeat(2)
                               .map(add_noise)
                               .batch(4)
                               .map(add_noise, {.parallelism = 2})
                               .prefetch(2)}),
    [](const auto& info) { return info.param.name; });

TEST_P(EveryChain, GoesOnFromAnyPositionAsIfUninterrupted) {
  const Dataset& dataset = GetParam().dataset;
  for (const std::int64_t epoch : {0, 3}) {
    const IterateOptions options{.seed = 5, .epoch = epoch};
    const auto all = batches_of(dataset, options);
    if (dataset.cardinality() != Dataset::kUnknown) {
      ASSERT_EQ(std::ssize(all), dataset.cardinality());
    }
    for (std::int64_t from = 0; from <= std::ssize(all); ++from) {
      auto elements = dataset.iterate(options);
      for (std::int64_t i = 0; i < from; ++i) elements.next();
      EXPECT_EQ(elements.position(), (DatasetPosition{epoch, from}));
      // Backwards, forwards, and in an iterator of its own, from another epoch.
      for (const std::int64_t to : {std::int64_t{0}, from, (from + std::ssize(all)) / 2}) {
        elements.seek({epoch, to});
        EXPECT_EQ(elements.position(), (DatasetPosition{epoch, to}));
        EXPECT_EQ(rest_of(elements), (std::vector(all.begin() + to, all.end())));
      }
      auto other = dataset.iterate({.seed = 5, .epoch = 7});
      other.seek({epoch, from});
      EXPECT_EQ(rest_of(other), (std::vector(all.begin() + from, all.end())));
    }
  }
}

TEST_P(EveryChain, RefusesAPositionPastTheEndAndStaysWhereItIs) {
  const Dataset& dataset = GetParam().dataset;
  const auto all = batches_of(dataset);
  auto elements = dataset.iterate();
  elements.next();
  for (const std::int64_t past : {std::ssize(all) + 1, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(message_of<OutOfRange>([&] {
                elements.seek({0, past});
              }),
              "seek to element " + std::to_string(past) + " of epoch 0: the dataset has only " +
                  std::to_string(all.size()) + " elements");
  }
  EXPECT_THROW(elements.seek({0, -1}), InvalidArgument);
  EXPECT_EQ(elements.position(), (DatasetPosition{0, 1}));
  EXPECT_EQ(rest_of(elements), (std::vector(all.begin() + 1, all.end())));
}

TEST(PositionTest, DoesNotMakeWhatItSkips) {
  std::atomic<int> made{0};
  std::atomic<int> mapped{0};
  const auto source = Dataset::from_function(1000, [&](std::int64_t index) {
    ++made;
    return Batch{at::Tensor(torch::tensor(index))};
  });
  const auto count = [&](Batch batch) {
    ++mapped;
    return batch;
  };
  auto batches = source.shuffle(1000).map(count).batch(10).repeat().iterate();
  batches.seek({0, 250});
  EXPECT_EQ(made, 0);
  batches.next();
  EXPECT_EQ(made, 10);
  EXPECT_EQ(mapped, 10);
}

TEST(PositionTest, ReachesAFarPositionOfARepeatAtOnce) {
  auto elements = numbers(3).repeat().iterate();
  elements.seek({0, 3'000'000'000'001});
  EXPECT_EQ(elements.next()->x.tensor().item<std::int64_t>(), 1);
}

}  // namespace
}  // namespace tandem
