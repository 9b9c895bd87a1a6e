#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <thread>

#include "data/support.h"
#include "tandem/dataset.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;

class CacheTest : public testing::Test {
 protected:
  // As numbers(n), counted in made_.
  Dataset source(std::int64_t n) {
    return Dataset::from_function(n, [this](std::int64_t index) {
      ++made_;
      return Batch{at::Tensor(torch::tensor(index))};
    });
  }

  // The same, of unknown length.
  Dataset stream(std::int64_t n) {
    return counted(n).map([this](Batch batch) {
      ++made_;
      return batch;
    });
  }

  std::atomic<int> made_{0};
};

TEST_F(CacheTest, MakesEachElementOnce) {
  for (const auto& upstream : {source(5), stream(5)}) {
    made_ = 0;
    const auto dataset = upstream.cache();
    EXPECT_EQ(made_, 0);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(values_of(dataset, {.epoch = epoch}), (Values{0, 1, 2, 3, 4}));
    }
    EXPECT_EQ(values_of(Dataset(dataset).repeat(2).batch(5)), (Values{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
    EXPECT_EQ(made_, 5);
  }
}

TEST_F(CacheTest, FillsInTheFirstPassOfARepeat) {
  EXPECT_EQ(values_of(source(3).cache().repeat().take(8)), (Values{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(made_, 3);
}

TEST_F(CacheTest, HasUpstreamsLengthAndBatchSize) {
  EXPECT_EQ(source(5).cache().cardinality(), 5);
  EXPECT_EQ(stream(5).cache().cardinality(), Dataset::kUnknown);
  EXPECT_EQ(source(5).batch(2).cache().batch_size(), 2);
  EXPECT_EQ(source(0).cache().repeat().cardinality(), 0);
  EXPECT_EQ(values_of(source(0).cache()), Values{});
}

TEST_F(CacheTest, KeepsNothingOfAPassThatIsNotFinished) {
  const auto dataset = stream(5).cache();
  {
    auto elements = dataset.iterate();
    for (int i = 0; i < 5; ++i) elements.next();  // the end is not known yet
  }
  EXPECT_EQ(values_of(dataset.take(2)), (Values{0, 1}));
  EXPECT_EQ(made_, 7);
  EXPECT_EQ(values_of(dataset), (Values{0, 1, 2, 3, 4}));
  EXPECT_EQ(made_, 12);
  EXPECT_EQ(values_of(dataset), (Values{0, 1, 2, 3, 4}));
  EXPECT_EQ(made_, 12);
}

TEST_F(CacheTest, IsFullWithTheLastElementWhereTheLengthIsKnown) {
  const auto dataset = source(4).cache();
  auto elements = dataset.batch(2).iterate();
  elements.next();
  elements.next();
  EXPECT_EQ(values_of(dataset), (Values{0, 1, 2, 3}));
  EXPECT_EQ(made_, 4);
}

TEST_F(CacheTest, FillsAlsoWhenWhatFollowsLeavesElementsOut) {
  const auto dataset = source(10).cache();
  EXPECT_EQ(values_of(dataset.skip(7)), (Values{7, 8, 9}));
  EXPECT_EQ(values_of(dataset.shard(4, 1)), (Values{1, 5, 9}));
  EXPECT_EQ(values_of(dataset.take(2)), (Values{0, 1}));
  EXPECT_EQ(made_, 10);
}

TEST_F(CacheTest, GoesOnFromAPositionWhetherOrNotItIsKept) {
  const auto dataset = source(6).cache();
  auto elements = dataset.iterate();
  elements.next();
  elements.seek({0, 3});
  EXPECT_EQ(made_, 4);  // one before, and the three that are skipped
  EXPECT_EQ(rest_of(elements), (Batches{{3}, {4}, {5}}));
  EXPECT_EQ(made_, 7);
  elements.seek({8, 4});
  EXPECT_EQ(rest_of(elements), (Batches{{4}, {5}}));
  EXPECT_EQ(message_of<OutOfRange>([&] {
              elements.seek({0, 7});
            }),
            "seek to element 7 of epoch 0: the dataset has only 6 elements");
  EXPECT_EQ(made_, 7);
}

TEST_F(CacheTest, FreezesWhatIsRandomBeforeIt) {
  const auto upstream = source(20).shuffle(20).map(draw);
  const auto dataset = upstream.cache();
  const auto first = values_of(dataset, {.seed = 3, .epoch = 2});
  EXPECT_EQ(first, values_of(upstream, {.seed = 3, .epoch = 2}));
  EXPECT_EQ(values_of(dataset, {.seed = 3, .epoch = 3}), first);
  EXPECT_EQ(values_of(dataset, {.seed = 4}), first);
  // Another cache has a first pass of its own.
  EXPECT_EQ(values_of(upstream.cache(), {.seed = 4}), values_of(upstream, {.seed = 4}));
}

TEST_F(CacheTest, LeavesWhatIsRandomAfterItAsWithoutACache) {
  for (const auto& upstream :
       {source(6), source(6).map(draw), source(3).repeat(2), source(3).repeat(2).batch(1).repeat(3),
        source(3).repeat().take(7), stream(4), source(6).cache()}) {
    const auto plain = upstream.map(draw).shuffle(5);
    const auto cached = upstream.cache().map(draw).shuffle(5);
    for (const std::int64_t epoch : {4, 0, 1, 7}) {
      const IterateOptions options{.seed = 5, .epoch = epoch};
      EXPECT_EQ(values_of(cached, options), values_of(plain, options));
    }
  }
}

TEST_F(CacheTest, KeepsNoErrorNorWhatCameBeforeIt) {
  bool damaged = true;
  const auto dataset = source(5)
                           .map([&](Batch batch) {
                             if (damaged && batch.x.tensor().item<std::int64_t>() == 3) {
                               throw DataLoss("number 3 is damaged");
                             }
                             return batch;
                           })
                           .cache();
  auto elements = dataset.iterate();
  for (int i = 0; i < 3; ++i) elements.next();
  EXPECT_EQ(message_of<DataLoss>([&] { elements.next(); }), "number 3 is damaged");
  EXPECT_FALSE(elements.next());
  EXPECT_EQ(message_of<DataLoss>([&] { values_of(dataset); }), "number 3 is damaged");
  damaged = false;
  elements.seek({0, 3});
  EXPECT_EQ(rest_of(elements), (Batches{{3}, {4}}));
  made_ = 0;
  EXPECT_EQ(values_of(dataset), (Values{0, 1, 2, 3, 4}));
  EXPECT_EQ(made_, 0);
}

TEST_F(CacheTest, IsNotChangedByAPassThatBeganBeforeItWasFull) {
  const auto dataset = source(6).map(draw).cache();
  auto late = dataset.iterate({.seed = 2});
  Batches seen{{late.next()->x.tensor().item<std::int64_t>()}};
  const auto first = values_of(dataset, {.seed = 1});
  for (const auto& element : rest_of(late)) seen.push_back(element);
  EXPECT_EQ(seen, batches_of(source(6).map(draw), {.seed = 2}));
  EXPECT_EQ(values_of(dataset, {.seed = 2}), first);
}

TEST_F(CacheTest, HasOnePassForAllWhenSeveralThreadsFillItAtOnce) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 20; ++round) {
    const auto upstream = numbers(50).shuffle(50).map(draw, {.parallelism = round % 2});
    const auto dataset = upstream.cache();
    std::barrier start(kThreads);
    std::atomic<int> right{0};
    std::vector<Values> later(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const IterateOptions options{.seed = static_cast<std::uint64_t>(i % 2)};
        start.arrive_and_wait();
        const auto first = values_of(dataset, options);
        right += first == values_of(upstream, {.seed = 0}) || first == values_of(upstream, {.seed = 1});
        later[i] = values_of(dataset, options);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right, kThreads);
    EXPECT_TRUE(later[0] == values_of(upstream, {.seed = 0}) || later[0] == values_of(upstream, {.seed = 1}));
    for (const auto& values : later) EXPECT_EQ(values, later[0]);
    EXPECT_EQ(values_of(dataset, {.seed = 9, .epoch = 9}), later[0]);
  }
}

TEST_F(CacheTest, SharesTheTensorsAndGoesWithTheLastDataset) {
  at::Tensor first;
  {
    const auto dataset = source(2).cache();
    auto elements = dataset.iterate();
    first = elements.next()->x.tensor();
    elements.next();
    EXPECT_EQ(dataset.iterate().next()->x.tensor().data_ptr(), first.data_ptr());
    EXPECT_GT(first.use_count(), 1u);
  }
  EXPECT_EQ(first.use_count(), 1u);
}

TEST_F(CacheTest, KeepsNothingOfWhatHasNoEnd) {
  const auto dataset = source(3).repeat().cache();
  EXPECT_EQ(dataset.cardinality(), Dataset::kInfinite);
  auto elements = dataset.iterate();
  elements.seek({0, 3'000'000'000'001});
  EXPECT_EQ(elements.next()->x.tensor().item<std::int64_t>(), 1);
  EXPECT_EQ(made_, 1);
}

}  // namespace
}  // namespace tandem
