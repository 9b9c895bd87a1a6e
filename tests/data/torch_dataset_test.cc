#include "tandem/data/torch_dataset.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "data/support.h"
#include "tandem/error.h"

namespace tandem {
namespace {

namespace datasets = torch::data::datasets;
namespace transforms = torch::data::transforms;
using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;

// What a user of libtorch writes.
class Squares : public datasets::Dataset<Squares> {
 public:
  explicit Squares(std::size_t size) : size_(size) {}

  torch::data::Example<> get(std::size_t index) override {
    if (index == 77) throw std::runtime_error("no square of 77");
    const auto number = static_cast<std::int64_t>(index);
    return {torch::full({2}, number * number), torch::tensor(number)};
  }

  torch::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
};

// Only in batches, and it cannot be copied.
class Tens : public datasets::BatchDataset<Tens> {
 public:
  Tens() = default;
  Tens(Tens&&) = default;

  std::vector<torch::data::Example<>> get_batch(torch::ArrayRef<std::size_t> indices) override {
    std::vector<torch::data::Example<>> examples;
    for (const std::size_t index : indices) {
      if (index < 3)
        examples.emplace_back(torch::tensor(10 * static_cast<std::int64_t>(index)), at::Tensor());
    }
    return examples;
  }

  torch::optional<std::size_t> size() const override { return 4; }
};

class Unsized : public Squares {
 public:
  Unsized() : Squares(3) {}

  torch::optional<std::size_t> size() const override { return {}; }
};

class Stream : public datasets::StreamDataset<Stream> {};
class Stateful : public datasets::StatefulDataset<Stateful> {};
using Stacked = decltype(Squares(3).map(transforms::Stack<>()));

static_assert(internal::GivesExamples<datasets::MNIST>);
static_assert(internal::GivesVectors<decltype(datasets::make_shared_dataset<Squares>(3))>);
static_assert(!internal::GivesBatches<Stream> && !internal::GivesBatches<Stateful>);
static_assert(internal::GivesBatches<Stacked> && !internal::GivesVectors<Stacked>);

TEST(TorchDatasetTest, GivesDataAsXAndTargetAsY) {
  const auto dataset = data::from_torch(Squares(5));
  EXPECT_EQ(dataset.cardinality(), 5);
  EXPECT_EQ(dataset.batch_size(), std::nullopt);
  auto batches = dataset.skip(1).batch(3).iterate();
  const auto batch = batches.next();
  EXPECT_TRUE(batch->x.tensor().equal(torch::tensor({{1, 1}, {4, 4}, {9, 9}}, torch::kLong)));
  EXPECT_TRUE(batch->y.tensor().equal(torch::tensor({1, 2, 3}, torch::kLong)));
  EXPECT_FALSE(batch->sample_weight.defined());
}

TEST(TorchDatasetTest, GivesNoYWhereThereIsNoTarget) {
  const at::Tensor rows = torch::arange(6).view({3, 2});
  const auto dataset = data::from_torch(datasets::TensorDataset(rows));
  EXPECT_EQ(batches_of(dataset), (Batches{{0, 1}, {2, 3}, {4, 5}}));
  auto examples = dataset.iterate();
  const auto example = examples.next();
  EXPECT_EQ(example->x.tensor().data_ptr(), rows.data_ptr());
  EXPECT_FALSE(example->y.defined());
}

TEST(TorchDatasetTest, TakesWhatTransformsMadeOfADataset) {
  const auto twice = [](torch::data::Example<> example) {
    return torch::data::Example<>{example.data * 2, example.target + 1};
  };
  const auto mapped = Squares(4)
                          .map(transforms::Lambda<torch::data::Example<>>(twice))
                          .map(transforms::TensorLambda<>([](at::Tensor x) { return x.add(1); }));
  const auto dataset = data::from_torch(mapped);
  EXPECT_EQ(dataset.cardinality(), 4);
  EXPECT_EQ(batches_of(dataset), (Batches{{1, 1}, {3, 3}, {9, 9}, {19, 19}}));
  EXPECT_EQ(dataset.iterate().next()->y.tensor().item<std::int64_t>(), 1);

  const auto normalized =
      datasets::TensorDataset(torch::arange(4).to(torch::kFloat).view({4, 1, 1, 1}))
          .map(transforms::TensorLambda<void>([](at::Tensor x) { return (x - 1) / 0.5; }));
  EXPECT_EQ(values_of(data::from_torch(normalized)), (Values{-2, 0, 2, 4}));
  EXPECT_EQ(values_of(data::from_torch(datasets::make_shared_dataset<Squares>(2))), (Values{0, 0, 1, 1}));
}

TEST(TorchDatasetTest, TakesADatasetThatGivesOnlyBatches) {
  const auto dataset = data::from_torch(Tens());
  EXPECT_EQ(values_of(dataset.take(3)), (Values{0, 10, 20}));
  EXPECT_FALSE(dataset.iterate().next()->y.defined());
  EXPECT_EQ(message_of<InvalidArgument>([&] { values_of(dataset); }),
            "from_torch: get_batch() gave 0 examples for index 3: expected 1");
}

TEST(TorchDatasetTest, IsASourceThatShardsAndSeeksByNumber) {
  const auto dataset = data::from_torch(Squares(200)).shard(2, 0).batch(4);
  auto batches = dataset.iterate();
  batches.seek({0, 24});  // past the square that cannot be made
  EXPECT_EQ(batches.next()->y.tensor().select(0, 0).item<std::int64_t>(), 192);
}

TEST(TorchDatasetTest, PassesOnWhatTheDatasetThrows) {
  auto examples = data::from_torch(Squares(100)).iterate();
  examples.seek({0, 77});
  EXPECT_EQ(message_of<std::runtime_error>([&] { examples.next(); }), "no square of 77");
}

TEST(TorchDatasetTest, IsSharedBySeveralPassesAtOnce) {
  const auto dataset = data::from_torch(Squares(70)).shuffle(70).prefetch(2);
  const auto expected = values_of(dataset);
  std::atomic<int> equal{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { equal += values_of(dataset) == expected; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(equal, 3);
}

TEST(TorchDatasetTest, RefusesADatasetThatDoesNotTellItsSize) {
  EXPECT_EQ(message_of<InvalidArgument>([] { data::from_torch(Unsized()); }),
            "from_torch: the dataset does not tell its size: use Dataset::from_generator");
}

}  // namespace
}  // namespace tandem
