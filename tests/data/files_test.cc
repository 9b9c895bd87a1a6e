#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>

#include "data/support.h"
#include "tandem/dataset.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;

Values in_order(Values values) {
  std::ranges::sort(values);
  return values;
}

// The files that the values come from, in order.
Values files_of(const Values& values) {
  Values files;
  for (const std::int64_t value : values) files.push_back(value / 100);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

TEST(FilesTest, GivesTheElementsOfOneFileAfterTheOther) {
  const NumberFiles files({3, 0, 2, 1});
  EXPECT_EQ(values_of(files.dataset()), (Values{0, 1, 2, 200, 201, 300}));
  EXPECT_EQ(values_of(Dataset::from_files(files.names(), NumberFiles::load)),
            (Values{0, 1, 2, 200, 201, 300}));
  EXPECT_EQ(batches_of(files.dataset().batch(4)), (Batches{{0, 1, 2, 200}, {201, 300}}));
  EXPECT_EQ(values_of(files.dataset().shard(2, 1)), (Values{1, 200, 300}));
}

TEST(FilesTest, HasOneFileOpenAtATime) {
  const NumberFiles files({2, 2, 2});
  // Each Dataset that read() makes holds a copy of the token in use.
  const auto token = std::make_shared<int>(0);
  int made = 0;
  const auto dataset = Dataset::from_files({"a", "b", "c"}, [&](const std::string&) {
    ++made;
    return Dataset::from_function(
        2, [token](std::int64_t index) { return Batch{at::Tensor(torch::tensor(index))}; });
  });
  const long idle = token.use_count();
  auto elements = dataset.batch(1).iterate();
  EXPECT_EQ(made, 0);
  for (int i = 0; i < 6; ++i) {
    elements.next();
    EXPECT_EQ(made, 1 + i / 2);
    EXPECT_EQ(token.use_count(), idle + 1);
  }
  EXPECT_FALSE(elements.next());
  EXPECT_EQ(token.use_count(), idle);
}

TEST(FilesTest, KnowsItsLengthWhereCountOrSmallFilesTellIt) {
  const NumberFiles files({3, 0, 2});
  EXPECT_EQ(files.dataset().cardinality(), Dataset::kUnknown);
  EXPECT_EQ(files.dataset({.count = NumberFiles::count_lines}).cardinality(), 5);
  EXPECT_EQ(files.dataset({.count = NumberFiles::count_lines}).batch(2).cardinality(), 3);
  EXPECT_EQ(Dataset::from_files(files.names(), NumberFiles::load).cardinality(), 5);
  // Where there are no such files to be measured, nothing is read just to count.
  EXPECT_EQ(Dataset::from_files({"a", "b"}, [](const std::string&) { return numbers(2); }).cardinality(),
            Dataset::kUnknown);
  EXPECT_EQ(Dataset::from_files(files.names(), [](const std::string&) { return numbers(2).repeat(); })
                .cardinality(),
            Dataset::kInfinite);
}

TEST(FilesTest, DoesNotReadLargeFilesToCount) {
  const NumberFiles files({1, 1});
  int read = 0;
  const auto dataset = Dataset::from_files(files.names(), [&](const std::string&) {
    ++read;
    return numbers(1);
  });
  std::filesystem::resize_file(files.names()[1], (std::uintmax_t{64} << 20) + 1);
  EXPECT_EQ(dataset.cardinality(), Dataset::kUnknown);
  EXPECT_EQ(read, 0);
}

TEST(FilesTest, AsksForTheLengthOfAFileOnce) {
  const NumberFiles files({3, 4});
  std::atomic<int> asked{0};
  const auto dataset = files.dataset({.count = [&](const std::string& name) {
    ++asked;
    return NumberFiles::count_lines(name);
  }});
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(dataset.cardinality(), 7);
  EXPECT_EQ(dataset.map(draw).batch(2).cardinality(), 4);
  EXPECT_EQ(values_of(dataset).size(), 7u);
  EXPECT_EQ(asked, 2);
}

TEST(FilesTest, SeeksOverFilesOfKnownLengthWithoutOpeningThem) {
  const NumberFiles files({3, 0, 4, 2});
  std::vector<std::string> opened;
  const auto read = [&](const std::string& name) {
    opened.push_back(name);
    return NumberFiles::read_lines(name);
  };
  const auto dataset = Dataset::from_files(files.names(), read, {.count = NumberFiles::count_lines});
  auto elements = dataset.iterate();
  elements.seek({0, 7});
  EXPECT_TRUE(opened.empty());
  EXPECT_EQ(rest_of(elements), (Batches{{300}, {301}}));
  EXPECT_EQ(opened, (std::vector{files.names()[3]}));
  opened.clear();
  elements.seek({0, 4});
  EXPECT_EQ(opened, (std::vector{files.names()[2]}));
  EXPECT_EQ(rest_of(elements).size(), 5u);
}

TEST(FilesTest, RefusesACountThatIsWrong) {
  const NumberFiles files({3, 2});
  const auto counted = [&](std::int64_t count) {
    return files.dataset({.count = [count](const std::string&) { return count; }});
  };
  EXPECT_EQ(message_of<FailedPrecondition>([&] { values_of(counted(3)); }),
            "from_files: " + files.names()[1] + " has 2 elements: expected 3, as count() told");
  EXPECT_EQ(message_of<FailedPrecondition>([&] { values_of(counted(2)); }),
            "from_files: " + files.names()[0] + " has more elements: expected 2, as count() told");
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { counted(-1).cardinality(); }),
      "from_files: count() told -1 for " + files.names()[0] + ": expected 0 or more, or Dataset::kUnknown");
  EXPECT_EQ(values_of(counted(Dataset::kUnknown)).size(), 5u);
}

TEST(FilesTest, ShufflesTheOrderOfTheFilesEachEpoch) {
  const NumberFiles files({2, 2, 2, 2, 2, 2});
  const auto dataset = files.dataset({.shuffle = true});
  const auto order = [&](const Dataset& of, std::uint64_t seed, std::int64_t epoch) {
    return files_of(values_of(of, {.seed = seed, .epoch = epoch}));
  };
  const Values first = order(dataset, 1, 0);
  EXPECT_EQ(in_order(first), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_NE(first, in_order(first));
  EXPECT_EQ(order(dataset, 1, 0), first);
  EXPECT_NE(order(dataset, 1, 1), first);
  EXPECT_NE(order(dataset, 2, 0), first);
  const auto seeded = files.dataset({.shuffle = true, .seed = 1});
  EXPECT_EQ(order(seeded, 2, 0), first);
  EXPECT_NE(order(seeded, 2, 1), first);
  EXPECT_EQ(files_of(values_of(dataset.repeat(2), {.seed = 1, .epoch = 0})).size(), 12u);
}

TEST(FilesTest, DrawsNumbersByFileAndExample) {
  const NumberFiles files({3, 2});
  const Values drawn = values_of(files.dataset().map(draw), {.seed = 3, .epoch = 5});
  for (const auto& [at, index] : {std::pair{0, std::int64_t{0}},
                                  {2, 2},
                                  {3, std::int64_t{1} << 32},
                                  {4, (std::int64_t{1} << 32) + 1}}) {
    EXPECT_EQ(drawn[at], ExampleRandom(3, 5, index).uniform_int(1000000));
  }
  // Whatever the order of the files.
  EXPECT_EQ(
      in_order(values_of(files.dataset({.shuffle = true, .seed = 2}).map(draw), {.seed = 3, .epoch = 5})),
      in_order(drawn));
}

TEST(FilesTest, DrawsOtherNumbersInEachFileForMapsOfItsOwn) {
  const NumberFiles files({3, 3});
  const auto read = [](const std::string& name) { return NumberFiles::read_lines(name).map(draw); };
  const auto dataset = Dataset::from_files(files.names(), read);
  const Values inside = values_of(dataset);
  EXPECT_EQ(std::set(inside.begin(), inside.end()).size(), 6u);
  EXPECT_NE(values_of(dataset, {.epoch = 1}), inside);
  const Values after = values_of(dataset.map(draw));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NE(after[i], inside[i]);
}

TEST(FilesTest, PassesOnWhatReadThrowsWhenItsTurnComes) {
  const NumberFiles files({2, 2});
  const auto read = [&](const std::string& name) {
    if (name == files.names()[1]) throw DataLoss(name + " is damaged");
    return NumberFiles::load(name);
  };
  const auto dataset = Dataset::from_files(files.names(), read);
  EXPECT_EQ(dataset.cardinality(), Dataset::kUnknown);
  auto elements = dataset.batch(1).iterate();
  EXPECT_EQ(elements.next()->x.tensor().item<std::int64_t>(), 0);
  EXPECT_EQ(elements.next()->x.tensor().item<std::int64_t>(), 1);
  EXPECT_EQ(message_of<DataLoss>([&] { elements.next(); }), files.names()[1] + " is damaged");
}

TEST(FilesTest, NamesTheFileOfAnExampleThatDoesNotFitItsBatch) {
  const auto dataset = Dataset::from_files({"a", "b"}, [](const std::string& name) {
    return Dataset::from_tensors(name == "a" ? torch::ones({2, 3}) : torch::ones({2, 4}));
  });
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { values_of(dataset.batch(4)); }),
      "batch: x of example 0 of file 1 is Float [4], but x of example 0, the first of its batch, is Float "
      "[3]");
}

TEST(FilesTest, RefusesAnEmptyList) {
  EXPECT_EQ(message_of<InvalidArgument>([] { Dataset::from_files({}, NumberFiles::load); }),
            "from_files: the list is empty: expected at least 1 file");
  EXPECT_EQ(message_of<InvalidArgument>([] { Dataset::from_files({"a"}, nullptr); }),
            "from_files: read is empty: expected a function that reads a file");
}

}  // namespace
}  // namespace tandem
