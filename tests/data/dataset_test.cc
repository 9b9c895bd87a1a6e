#include "tandem/dataset.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "data/support.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;

Batch add_one(Batch batch) {
  batch.x = batch.x.tensor() + 1;
  return batch;
}

Values range(std::int64_t begin, std::int64_t end) {
  Values values(end - begin);
  std::iota(values.begin(), values.end(), begin);
  return values;
}

TEST(DatasetTest, GivesTheRowsOfTensorsAsViews) {
  const at::Tensor x = torch::arange(12).view({4, 3});
  const auto dataset = Dataset::from_tensors(x, torch::arange(4), torch::ones(4));
  EXPECT_EQ(dataset.cardinality(), 4);
  EXPECT_EQ(dataset.batch_size(), std::nullopt);
  auto examples = dataset.iterate();
  examples.next();
  const auto second = examples.next();
  EXPECT_EQ(second->x.tensor().data_ptr(), x[1].data_ptr());
  EXPECT_EQ(second->y.tensor().item<std::int64_t>(), 1);
  EXPECT_EQ(second->sample_weight.dim(), 0);
  EXPECT_EQ(values_of(Dataset::from_tensor_slices(x)), range(0, 12));
}

TEST(DatasetTest, RefusesTensorsWithDifferentNumbersOfRows) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              Dataset::from_tensors(torch::ones({3, 2}), torch::ones(4));
            }),
            "x has 3 rows, y has 4: expected the same");
  EXPECT_THROW(Dataset::from_tensors(Tensors()), InvalidArgument);
}

TEST(DatasetTest, MapsEachElement) {
  EXPECT_EQ(values_of(numbers(4).map(add_one)), range(1, 5));
  EXPECT_EQ(values_of(numbers(4).batch(2).map(add_one)), range(1, 5));
}

TEST(DatasetTest, IsAValueThatCanBeIteratedTwiceAtOnce) {
  const auto dataset = numbers(3).map(add_one).prefetch(2);
  auto one = dataset.iterate();
  auto other = dataset.iterate();
  EXPECT_EQ(one.next()->x.tensor().item<std::int64_t>(), 1);
  EXPECT_EQ(rest_of(other), (Batches{{1}, {2}, {3}}));
  EXPECT_EQ(rest_of(one), (Batches{{2}, {3}}));
  EXPECT_FALSE(one.next());
}

TEST(ExampleRandomTest, IsAFunctionOfSeedEpochAndIndex) {
  const auto first = [](std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
    return ExampleRandom(seed, epoch, index).bits();
  };
  EXPECT_EQ(first(1, 2, 3), first(1, 2, 3));
  const std::set<std::uint64_t> all{first(1, 2, 3), first(2, 1, 3), first(1, 3, 2), first(3, 2, 1),
                                    first(0, 0, 0)};
  EXPECT_EQ(all.size(), 5u);
}

TEST(ExampleRandomTest, IsEvenlySpread) {
  std::array<int, 10> counts{};
  double sum = 0;
  for (int index = 0; index < 10000; ++index) {
    ExampleRandom random(7, 0, index);
    ++counts[random.uniform_int(10)];
    sum += random.uniform();
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  EXPECT_THROW(ExampleRandom(0, 0, 0).uniform_int(0), InvalidArgument);
}

// The numbers themselves are a promise: pictures must not change with the compiler or the standard library.
TEST(ExampleRandomTest, GivesTheSameNumbersEverywhere) {
  ExampleRandom random(1, 2, 3);
  EXPECT_EQ(random.bits(), 2399657773382937285u);
  EXPECT_EQ(values_of(numbers(8).shuffle(8), {.seed = 1}), (Values{6, 2, 1, 0, 5, 7, 3, 4}));
}

TEST(DatasetTest, DrawsRandomNumbersByExampleNotByOrder) {
  const auto plain = values_of(numbers(50).map(draw), {.seed = 3});
  auto shuffled = values_of(numbers(50).shuffle(50).map(draw), {.seed = 3});
  EXPECT_NE(shuffled, plain);
  auto sorted = plain;
  std::ranges::sort(sorted);
  std::ranges::sort(shuffled);
  EXPECT_EQ(shuffled, sorted);
  EXPECT_NE(values_of(numbers(50).map(draw), {.seed = 3, .epoch = 1}), plain);
  EXPECT_NE(values_of(numbers(50).map(draw), {.seed = 4}), plain);
  EXPECT_EQ(plain[7], ExampleRandom(3, 0, 7).uniform_int(1000000));
}

TEST(DatasetTest, DrawsNewNumbersInEachPassAndEachMap) {
  const auto twice = values_of(numbers(5).repeat(2).map(draw));
  EXPECT_EQ(std::set(twice.begin(), twice.end()).size(), 10u);
  const auto first_map = values_of(numbers(5).map(draw));
  const auto second_map = values_of(numbers(5).map(draw).map(draw));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NE(first_map[i], second_map[i]);
  // A map without random numbers, or a prefetch, in between changes nothing.
  EXPECT_EQ(values_of(numbers(5).map(add_one).prefetch(1).map(draw)), first_map);
}

TEST(ShuffleTest, IsARepeatablePermutationThatDiffersByEpochAndSeed) {
  const auto dataset = numbers(100).shuffle(100);
  const auto order = values_of(dataset, {.seed = 1});
  EXPECT_NE(order, range(0, 100));
  auto sorted = order;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, range(0, 100));
  EXPECT_EQ(values_of(dataset, {.seed = 1}), order);
  EXPECT_NE(values_of(dataset, {.seed = 1, .epoch = 1}), order);
  EXPECT_NE(values_of(dataset, {.seed = 2}), order);
  EXPECT_EQ(dataset.cardinality(), 100);
}

TEST(ShuffleTest, HasOneOrderWhetherTheBufferHoldsNumbersOrElements) {
  const auto over_source = values_of(numbers(40).shuffle(16), {.seed = 1});
  EXPECT_EQ(values_of(numbers(40).take(40).shuffle(16), {.seed = 1}), over_source);
}

TEST(ShuffleTest, DrawsFromTheNextElementsOnly) {
  const auto order = values_of(numbers(200).shuffle(10));
  for (std::int64_t i = 0; i < 200; ++i) EXPECT_LT(order[i], i + 10);
  EXPECT_EQ(values_of(numbers(5).shuffle(1)), range(0, 5));
  EXPECT_EQ(values_of(numbers(5).shuffle(1 << 30)).size(), 5u);
}

TEST(ShuffleTest, KeepsItsOrderWhenAskedNotToReshuffle) {
  const auto fixed = numbers(30).shuffle(30, {.reshuffle_each_iteration = false});
  EXPECT_EQ(values_of(fixed, {.epoch = 5}), values_of(fixed, {.epoch = 0}));
}

TEST(ShuffleTest, PrefersASeedOfItsOwn) {
  const auto seeded = numbers(30).shuffle(30, {.seed = 9});
  EXPECT_EQ(values_of(seeded, {.seed = 1}), values_of(seeded, {.seed = 2}));
  EXPECT_NE(values_of(seeded, {.epoch = 0}), values_of(seeded, {.epoch = 1}));
  EXPECT_EQ(values_of(seeded), values_of(numbers(30).shuffle(30), {.seed = 9}));
}

TEST(BatchViewTest, StacksWithTheRemainderOrWithout) {
  const auto batches = numbers(7).batch(3);
  EXPECT_EQ(batches_of(batches), (Batches{{0, 1, 2}, {3, 4, 5}, {6}}));
  EXPECT_EQ(batches.cardinality(), 3);
  EXPECT_EQ(batches.batch_size(), 3);
  const auto full = numbers(7).batch(3, {.drop_remainder = true});
  EXPECT_EQ(batches_of(full), (Batches{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(full.cardinality(), 2);
  EXPECT_EQ(batches_of(numbers(2).batch(1 << 30)), (Batches{{0, 1}}));
  EXPECT_EQ(batches_of(numbers(2).batch(3, {.drop_remainder = true})), Batches{});
  EXPECT_EQ(batches_of(numbers(0).batch(3)), Batches{});
}

TEST(BatchViewTest, KeepsTypesShapesAndNames) {
  const auto dataset = Dataset::from_tensors(
      Tensors::Map{{"a", torch::rand({4, 2, 3})}, {"b", torch::arange(4)}}, torch::rand(4), torch::ones(4));
  auto batches = dataset.batch(3).iterate();
  const auto batch = batches.next();
  EXPECT_EQ(batch->x["a"].sizes(), (at::IntArrayRef{3, 2, 3}));
  EXPECT_EQ(batch->x["b"].scalar_type(), torch::kLong);
  EXPECT_EQ(batch->y.tensor().sizes(), (at::IntArrayRef{3}));
  EXPECT_EQ(batch->sample_weight.sizes(), (at::IntArrayRef{3}));
  EXPECT_EQ(batches.next()->rows(), 1);
}

TEST(BatchViewTest, CopiesRowsThatAreNotContiguous) {
  const at::Tensor x = torch::arange(24).view({2, 3, 4});
  const auto transposed = [](Batch batch) {
    batch.x = batch.x.tensor().t();
    return batch;
  };
  auto batches = Dataset::from_tensors(x).map(transposed).batch(2).iterate();
  const auto batch = batches.next();
  EXPECT_TRUE(batch->x.tensor().is_contiguous());
  EXPECT_TRUE(batch->x.tensor().equal(x.transpose(1, 2)));
}

TEST(BatchViewTest, StacksBatchesOfBatches) {
  auto batches = numbers(8).batch(2).batch(2).iterate();
  EXPECT_EQ(batches.next()->x.tensor().sizes(), (at::IntArrayRef{2, 2}));
}

TEST(BatchViewTest, NamesTheExampleThatIsUnlikeTheFirst) {
  const auto shapes = Dataset::from_function(4, [](std::int64_t index) {
    return Batch{at::Tensor(torch::ones({2, index < 3 ? 2 : 5}))};
  });
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { values_of(shapes.batch(4)); }),
      "batch: x of example 3 is Float [2, 5], but x of example 0, the first of its batch, is Float [2, 2]");
  const auto types = Dataset::from_function(2, [](std::int64_t index) {
    return Batch{Tensors::Map{{"a", torch::ones(1, index == 0 ? torch::kFloat : torch::kByte)}}};
  });
  EXPECT_EQ(message_of<InvalidArgument>([&] { values_of(types.batch(2)); }),
            "batch: x[\"a\"] of example 1 is Byte [1], but x[\"a\"] of example 0, the first of its batch, is "
            "Float [1]");
  const auto labels = Dataset::from_function(2, [](std::int64_t index) {
    return Batch{at::Tensor(torch::ones(1)), index == 0 ? Tensors(at::Tensor(torch::ones(1))) : Tensors()};
  });
  EXPECT_EQ(message_of<InvalidArgument>([&] { values_of(labels.batch(2)); }),
            "batch: example 1 has x, but example 0, the first of its batch, has x, y");
}

TEST(RepeatTest, CountsEachPassAsAnEpoch) {
  const auto shuffled = numbers(20).shuffle(20);
  auto expected = values_of(shuffled, {.epoch = 2});
  const auto second = values_of(shuffled, {.epoch = 3});
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(values_of(shuffled.repeat(2), {.epoch = 1}), expected);
  EXPECT_EQ(shuffled.repeat(2).cardinality(), 40);
}

TEST(RepeatTest, GoesOnForEver) {
  EXPECT_EQ(values_of(numbers(3).repeat().take(8)), (Values{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(numbers(3).repeat().cardinality(), Dataset::kInfinite);
  EXPECT_EQ(numbers(3).repeat().batch(2).cardinality(), Dataset::kInfinite);
  EXPECT_EQ(numbers(3).repeat().take(8).cardinality(), 8);
}

TEST(RepeatTest, EndsWhenThereIsNothingToRepeat) {
  EXPECT_EQ(values_of(numbers(0).repeat()), Values{});
  EXPECT_EQ(numbers(0).repeat().cardinality(), 0);
  EXPECT_EQ(values_of(numbers(5).repeat(0)), Values{});
}

TEST(SliceTest, TakesAndSkips) {
  EXPECT_EQ(values_of(numbers(10).take(3)), range(0, 3));
  EXPECT_EQ(values_of(numbers(10).skip(7)), range(7, 10));
  EXPECT_EQ(values_of(numbers(10).skip(2).take(3)), range(2, 5));
  EXPECT_EQ(values_of(numbers(3).take(10)), range(0, 3));
  EXPECT_EQ(values_of(numbers(3).skip(10)), Values{});
  EXPECT_EQ(numbers(10).take(3).cardinality(), 3);
  EXPECT_EQ(numbers(3).take(10).cardinality(), 3);
  EXPECT_EQ(numbers(10).skip(7).cardinality(), 3);
  EXPECT_EQ(numbers(3).skip(10).cardinality(), 0);
  EXPECT_EQ(numbers(3).repeat().skip(10).cardinality(), Dataset::kInfinite);
}

TEST(DatasetTest, RefusesCountsItCannotMean) {
  const auto dataset = numbers(4);
  const auto refused = [](auto fn) { return message_of<InvalidArgument>(fn); };
  EXPECT_EQ(refused([&] { dataset.batch(0); }), "batch(0): expected at least 1 element per batch");
  EXPECT_EQ(refused([&] { dataset.shuffle(0); }), "shuffle(0): expected a buffer of at least 1 element");
  EXPECT_EQ(refused([&] { dataset.prefetch(0); }), "prefetch(0): expected at least 1 element");
  EXPECT_EQ(refused([&] { dataset.take(-1); }), "take(-1): expected 0 or more elements");
  EXPECT_EQ(refused([&] { dataset.skip(-2); }), "skip(-2): expected 0 or more elements");
  EXPECT_EQ(refused([&] { dataset.repeat(-2); }), "repeat(-2): expected 0 or more, or Dataset::kInfinite");
  EXPECT_EQ(refused([&] { numbers(-1); }), "a dataset of -1 examples: expected 0 or more");
  EXPECT_EQ(refused([&] { dataset.map(add_one, {.parallelism = -1}); }),
            "map: parallelism -1: expected a number of threads, or 0 for the one that iterates");
}

}  // namespace
}  // namespace tandem
