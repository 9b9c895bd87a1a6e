#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <memory>
#include <thread>

#include "data/support.h"
#include "tandem/dataset.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;
using Generator = std::function<std::optional<Batch>()>;

TEST(GeneratorTest, GivesWhatTheGeneratorGivesAgainInEachPass) {
  const auto dataset = counted(4);
  for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(values_of(dataset), (Values{0, 1, 2, 3}));
  EXPECT_EQ(batches_of(dataset.repeat(2).batch(3)), (Batches{{0, 1, 2}, {3, 0, 1}, {2, 3}}));
  EXPECT_EQ(values_of(counted(0)), Values{});
  EXPECT_EQ(values_of(counted(0).repeat()), Values{});
}

TEST(GeneratorTest, DoesNotKnowItsLengthUnlessItIsTold) {
  EXPECT_EQ(counted(4).cardinality(), Dataset::kUnknown);
  EXPECT_EQ(counted(4).batch(2).repeat(3).cardinality(), Dataset::kUnknown);
  EXPECT_EQ(counted(4).repeat().cardinality(), Dataset::kInfinite);
  EXPECT_EQ(counted(4, 4).batch(3).cardinality(), 2);
  EXPECT_EQ(counted(4, Dataset::kInfinite).cardinality(), Dataset::kInfinite);
  EXPECT_EQ(counted(4).batch_size(), std::nullopt);
}

TEST(GeneratorTest, IsMadeWhenFirstAskedAndNotAskedPastItsEnd) {
  int made = 0;
  int asked = 0;
  const auto dataset = Dataset::from_generator([&]() -> Generator {
    ++made;
    return [&asked, generator = count_to(2)]() mutable {
      ++asked;
      return generator();
    };
  });
  auto elements = dataset.prefetch(2).map([](Batch batch) { return batch; }).iterate();
  EXPECT_EQ(made, 0);
  EXPECT_EQ(rest_of(elements), (Batches{{0}, {1}}));
  EXPECT_FALSE(elements.next());
  EXPECT_EQ(made, 1);
  EXPECT_EQ(asked, 3);
}

TEST(GeneratorTest, IsRunAgainToSeek) {
  int made = 0;
  auto elements = Dataset::from_generator([&made] {
                    ++made;
                    return count_to(9);
                  }).iterate();
  for (int i = 0; i < 6; ++i) elements.next();
  elements.seek({0, 4});
  EXPECT_EQ(made, 2);
  EXPECT_EQ(rest_of(elements), (Batches{{4}, {5}, {6}, {7}, {8}}));
}

TEST(GeneratorTest, GoesWithItsPass) {
  const auto held = std::make_shared<int>(0);
  const auto dataset = Dataset::from_generator([weak = std::weak_ptr(held)] {
    return [strong = weak.lock(), generator = count_to(3)]() mutable { return generator(); };
  });
  auto elements = dataset.iterate();
  elements.next();
  EXPECT_EQ(held.use_count(), 2);
  elements = numbers(1).iterate();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(GeneratorTest, NumbersItsElementsByTheirPositionInThePass) {
  const auto draw = [](Batch batch, ExampleRandom& random) {
    batch.x = torch::tensor(random.uniform_int(1000000));
    return batch;
  };
  EXPECT_EQ(values_of(counted(5).repeat(2).map(draw), {.seed = 3}),
            values_of(numbers(5).repeat(2).map(draw), {.seed = 3}));
}

TEST(GeneratorTest, PassesOnWhatItThrows) {
  const auto dataset = Dataset::from_generator([] {
    return [generator = count_to(9), left = 3]() mutable {
      if (left-- == 0) throw DataLoss("the fourth is damaged");
      return generator();
    };
  });
  for (const auto& chain : {dataset, dataset.prefetch(4), dataset.cache()}) {
    auto elements = chain.iterate();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(elements.next());
    EXPECT_EQ(message_of<DataLoss>([&] { elements.next(); }), "the fourth is damaged");
    EXPECT_FALSE(elements.next());
  }
  const auto broken = Dataset::from_generator([]() -> Generator { throw NotFound("no such stream"); });
  EXPECT_EQ(message_of<NotFound>([&] { values_of(broken); }), "no such stream");
}

TEST(GeneratorTest, HasAGeneratorForEachOfSeveralPassesAtOnce) {
  const auto dataset = counted(500).batch(5);
  const auto expected = batches_of(dataset);
  std::atomic<int> equal{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { equal += batches_of(dataset) == expected; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(equal, 4);
}

TEST(GeneratorTest, HoldsTheGeneratorToItsCardinality) {
  const auto broken = [](const Dataset& dataset) {
    return message_of<FailedPrecondition>([&] { values_of(dataset); });
  };
  EXPECT_EQ(broken(counted(3, 5)), "from_generator: expected 5 elements, but the generator ended after 3");
  EXPECT_EQ(broken(counted(5, 3)), "from_generator: expected 3 elements, but the generator gave more");
  EXPECT_EQ(broken(counted(5, Dataset::kInfinite)),
            "from_generator: expected elements without an end, but the generator ended after 5");
  EXPECT_EQ(values_of(counted(5, 5)).size(), 5u);
  EXPECT_EQ(values_of(counted(9, Dataset::kInfinite).take(5)).size(), 5u);
}

TEST(GeneratorTest, RefusesACardinalityItCannotMean) {
  EXPECT_EQ(message_of<InvalidArgument>([] { counted(4, -3); }),
            "from_generator: cardinality -3: expected 0 or more, Dataset::kInfinite or Dataset::kUnknown");
}

}  // namespace
}  // namespace tandem
