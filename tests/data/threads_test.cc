// What threads must not change: order, pictures, errors. And that they end.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "data/support.h"
#include "tandem/data/cifar10.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

std::int64_t value_of(const Batch& batch) {
  return batch.x.tensor().item<std::int64_t>();
}

std::int64_t threads_now() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// A thread that was joined may be listed for a moment more.
void expect_threads(std::int64_t expected) {
  for (int i = 0; i < 400 && threads_now() > expected; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(threads_now(), expected);
}

// Later elements are ready sooner.
Batch uneven(Batch batch) {
  std::this_thread::sleep_for(std::chrono::microseconds(value_of(batch) % 7 == 0 ? 300 : 1));
  return batch;
}

class ParallelMap : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Threads, ParallelMap, testing::Values(0, 1, 4));

TEST_P(ParallelMap, KeepsTheOrder) {
  std::vector<std::int64_t> expected(300);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(values_of(numbers(300).map(uneven, {.parallelism = GetParam()})), expected);
}

TEST_P(ParallelMap, MakesTheSamePictures) {
  const auto pictures = data::synthetic_cifar10(data::Split::kTrain, 100).shuffle(100);
  const IterateOptions options{.seed = 4, .epoch = 2};
  auto expected = pictures.map(data::augment_cifar).batch(100).iterate(options);
  auto actual =
      pictures.map(data::augment_cifar, {.parallelism = GetParam()}).batch(100).prefetch(1).iterate(options);
  EXPECT_TRUE(actual.next()->x.tensor().equal(expected.next()->x));
}

TEST_P(ParallelMap, GivesWhatCameBeforeAnErrorThenTheErrorOnce) {
  const auto fail_at_37 = [](Batch batch) {
    if (value_of(batch) == 37) throw DataLoss("number 37 is damaged");
    return batch;
  };
  const auto dataset = numbers(1000).map(fail_at_37, {.parallelism = GetParam()});
  for (const auto& chain :
       {dataset, dataset.prefetch(5), dataset.prefetch(50).map(uneven, {.parallelism = 2})}) {
    const auto before = threads_now();
    auto elements = chain.iterate();
    for (int i = 0; i < 37; ++i) EXPECT_EQ(value_of(*elements.next()), i);
    EXPECT_EQ(message_of<DataLoss>([&] { elements.next(); }), "number 37 is damaged");
    expect_threads(before);
    EXPECT_FALSE(elements.next());
    EXPECT_EQ(elements.position(), (DatasetPosition{0, 37}));
    elements.seek({0, 38});
    EXPECT_EQ(value_of(*elements.next()), 38);
  }
}

TEST_P(ParallelMap, PassesOnTheErrorOfASource) {
  const auto source = Dataset::from_function(100, [](std::int64_t index) -> Batch {
    if (index == 20) throw std::runtime_error("no example 20");
    return {at::Tensor(torch::tensor(index))};
  });
  auto elements = source.map(uneven, {.parallelism = GetParam()}).iterate();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(value_of(*elements.next()), i);
  EXPECT_EQ(message_of<std::runtime_error>([&] { elements.next(); }), "no example 20");
  EXPECT_FALSE(elements.next());
}

TEST_P(ParallelMap, EndsItsThreadsWhereverTheIteratorIsDestroyed) {
  const auto dataset = numbers(1000).map(uneven, {.parallelism = GetParam()}).batch(3).prefetch(2);
  const auto before = threads_now();
  for (int read = 0; read < 40; ++read) {
    auto elements = dataset.iterate();
    for (int i = 0; i < read; ++i) elements.next();
  }
  expect_threads(before);
  auto elements = dataset.iterate();
  elements.next();
  elements = numbers(1).iterate();
  expect_threads(before);
}

TEST(ParallelMapTest, DoesNotFinishWhatNobodyWaitsFor) {
  const auto slow = [](Batch batch) {
    std::this_thread::sleep_for(20ms);
    return batch;
  };
  const auto start = std::chrono::steady_clock::now();
  {
    auto elements = numbers(1000).map(slow, {.parallelism = 2}).prefetch(100).iterate();
    elements.next();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 500ms);
}

TEST(ParallelMapTest, WorksAheadNoFurtherThanItsWindow) {
  std::atomic<int> calls{0};
  const auto count = [&](Batch batch) {
    ++calls;
    return batch;
  };
  auto batches = numbers(1000).batch(1).map(count, {.parallelism = 2}).iterate();
  batches.next();
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(calls, 5);
}

TEST(ParallelMapTest, GivesItsThreadsOneIntraOpThreadAndLeavesTheCallersAlone) {
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  const auto ask = [](Batch batch) {
    batch.x = torch::tensor(at::get_num_threads());
    return batch;
  };
  EXPECT_EQ(values_of(numbers(3).map(ask, {.parallelism = 2})), (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(values_of(numbers(3).map(ask).prefetch(1)), (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(values_of(numbers(1).map(ask)), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(threads);
}

TEST(PrefetchTest, PreparesUpToItsCountAndCountsOnlyWhatItHandedOut) {
  std::atomic<int> made{0};
  const auto source = Dataset::from_function(100, [&](std::int64_t index) {
    ++made;
    return Batch{at::Tensor(torch::tensor(index))};
  });
  auto batches = source.batch(1).prefetch(3).iterate();
  EXPECT_EQ(made, 0);
  batches.next();
  for (int i = 0; i < 200 && made < 4; ++i) std::this_thread::sleep_for(5ms);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(made, 4);
  EXPECT_EQ(batches.position(), (DatasetPosition{0, 1}));
}

}  // namespace
}  // namespace tandem
