#include "data/auto_shard.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "data/split_rule.h"
#include "data/support.h"
#include "tandem/dataset.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;

Batch keep(Batch batch) {
  return batch;
}

// y becomes a random number for x.
Batch draw_label(Batch batch, ExampleRandom& random) {
  batch.y = torch::tensor(random.uniform_int(1'000'000'000));
  return batch;
}

Dataset part(const Dataset& dataset, AutoShardPolicy policy, int workers, int worker) {
  return auto_shard(dataset.with_auto_shard(policy), workers, worker).dataset;
}

Dataset file_part(const Dataset& dataset, int workers, int worker) {
  return part(dataset, AutoShardPolicy::kFile, workers, worker);
}

// The batches of a worker's replicas, in the order in which they come: what distribute() makes of
// auto_shard() and the split rules.
Batches batches_of_worker(const Dataset& dataset, int workers, int replicas, int worker) {
  const Sharded sharded = auto_shard(dataset, workers, worker);
  if (!sharded.global_batches) {
    return batches_of(
        rebatch(sharded.dataset, batch_sizes_for_worker(*dataset.batch_size(), workers, replicas, worker)));
  }
  Batches batches;
  for (const Values& batch : batches_of(sharded.dataset)) {
    for (int local = 0; local < replicas; ++local) {
      const RowRange rows = rows_of_replica(std::ssize(batch), workers * replicas, worker * replicas + local);
      batches.emplace_back(batch.begin() + rows.begin, batch.begin() + rows.end);
    }
  }
  return batches;
}

// y of each x.
std::map<std::int64_t, std::int64_t> drawn_by(const Dataset& dataset, IterateOptions options) {
  std::map<std::int64_t, std::int64_t> drawn;
  auto elements = dataset.iterate(options);
  while (const auto batch = elements.next()) {
    for (std::int64_t row = 0; row < batch->rows(); ++row) {
      const std::int64_t x = batch->x.tensor()[row].item<std::int64_t>();
      EXPECT_TRUE(drawn.emplace(x, batch->y.tensor()[row].item<std::int64_t>()).second) << x << " came twice";
    }
  }
  return drawn;
}

TEST(AutoShardPolicyTest, IsAutoAndIsKeptByLaterViews) {
  EXPECT_EQ(numbers(4).auto_shard_policy(), AutoShardPolicy::kAuto);
  const auto dataset = numbers(4).with_auto_shard(AutoShardPolicy::kOff);
  for (const auto& later : {dataset, dataset.map(keep), dataset.map(draw_label), dataset.shuffle(2),
                            dataset.batch(2), dataset.repeat(2), dataset.take(1), dataset.skip(1),
                            dataset.shard(2, 1), dataset.shard_hint(), dataset.cache(), dataset.prefetch(1),
                            dataset.batch(2).map(keep).prefetch(1), rebatch(dataset.batch(2), {1})}) {
    EXPECT_EQ(later.auto_shard_policy(), AutoShardPolicy::kOff);
  }
  EXPECT_EQ(dataset.with_auto_shard(AutoShardPolicy::kData).auto_shard_policy(), AutoShardPolicy::kData);
}

// The tables of SEMANTICS 6 and docs/input.md.

TEST(AutoShardTest, DataGivesEachWorkerItsRowsOfEachBatch) {
  const auto dataset = numbers(12).batch(4).with_auto_shard(AutoShardPolicy::kData);
  EXPECT_EQ(batches_of_worker(dataset, 2, 1, 0), (Batches{{0, 1}, {4, 5}, {8, 9}}));
  EXPECT_EQ(batches_of_worker(dataset, 2, 1, 1), (Batches{{2, 3}, {6, 7}, {10, 11}}));
  EXPECT_EQ(batches_of_worker(dataset, 2, 2, 0), (Batches{{0}, {1}, {4}, {5}, {8}, {9}}));
  EXPECT_EQ(batches_of_worker(dataset, 2, 2, 1), (Batches{{2}, {3}, {6}, {7}, {10}, {11}}));
  // A short last batch: pieces of ceil(1 / 2).
  const auto uneven = numbers(9).batch(4).with_auto_shard(AutoShardPolicy::kData);
  EXPECT_EQ(batches_of_worker(uneven, 2, 1, 0), (Batches{{0, 1}, {4, 5}, {8}}));
  EXPECT_EQ(batches_of_worker(uneven, 2, 1, 1), (Batches{{2, 3}, {6, 7}, {}}));
}

TEST(AutoShardTest, FileGivesEachWorkerEveryOtherFile) {
  const NumberFiles files({4, 3, 2, 3});
  const auto dataset = files.dataset().batch(4).with_auto_shard(AutoShardPolicy::kFile);
  EXPECT_EQ(batches_of_worker(dataset, 2, 1, 0), (Batches{{0, 1}, {2, 3}, {200, 201}}));
  EXPECT_EQ(batches_of_worker(dataset, 2, 1, 1), (Batches{{100, 101}, {102, 300}, {301, 302}}));
  EXPECT_EQ(batches_of_worker(dataset, 2, 2, 1), (Batches{{100}, {101}, {102}, {300}, {301}, {302}}));
  EXPECT_EQ(batches_of_worker(dataset, 4, 1, 3), (Batches{{300}, {301}, {302}}));
  const auto sevens = files.dataset().batch(7).with_auto_shard(AutoShardPolicy::kFile);
  EXPECT_EQ(batches_of_worker(sevens, 2, 2, 0), (Batches{{0, 1}, {2, 3}, {200, 201}}));
  EXPECT_EQ(batches_of_worker(sevens, 2, 2, 1), (Batches{{100, 101}, {102}, {300, 301}, {302}}));
}

TEST(AutoShardTest, OffGivesEachWorkerEverything) {
  const auto dataset = numbers(6).batch(4).with_auto_shard(AutoShardPolicy::kOff);
  for (const int worker : {0, 1}) {
    EXPECT_EQ(batches_of_worker(dataset, 2, 1, worker), (Batches{{0, 1}, {2, 3}, {4, 5}}));
  }
}

TEST(AutoShardTest, HintFillsInTheShard) {
  const auto dataset = numbers(10).shard_hint().map(keep).batch(4).with_auto_shard(AutoShardPolicy::kHint);
  EXPECT_EQ(batches_of(dataset), (Batches{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
  EXPECT_EQ(batches_of_worker(dataset, 2, 1, 0), (Batches{{0, 2}, {4, 6}, {8}}));
  EXPECT_EQ(batches_of_worker(dataset, 2, 1, 1), (Batches{{1, 3}, {5, 7}, {9}}));
  const auto of_batches = numbers(12).batch(2).shard_hint().with_auto_shard(AutoShardPolicy::kHint);
  EXPECT_EQ(batches_of_worker(of_batches, 3, 1, 1), (Batches{{2}, {}, {3}, {8}, {}, {9}}));
  // Filled or not, a shuffle after it holds only numbers.
  EXPECT_EQ(values_of(part(numbers(40).shard_hint().shuffle(9), AutoShardPolicy::kHint, 2, 1), {.seed = 1}),
            values_of(numbers(40).shard(2, 1).shuffle(9), {.seed = 1}));
}

TEST(AutoShardTest, OneWorkerHasEverythingWithoutAWord) {
  const NumberFiles files({2, 2});
  for (const auto policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kFile, AutoShardPolicy::kData,
                            AutoShardPolicy::kOff, AutoShardPolicy::kHint}) {
    for (const auto& dataset : {files.dataset().batch(2), numbers(4).batch(2)}) {
      const Sharded sharded = auto_shard(dataset.with_auto_shard(policy), 1, 0);
      EXPECT_EQ(sharded.line, "");
      EXPECT_EQ(sharded.chosen, AutoShardPolicy::kOff);
      EXPECT_TRUE(sharded.global_batches);
      EXPECT_EQ(sharded.dataset.view(), dataset.view());
    }
  }
}

TEST(AutoShardTest, SaysWhatItDoesAndWhyInOneLine) {
  const NumberFiles five({1, 1, 1, 1, 1});
  const auto line = [](const Dataset& dataset, AutoShardPolicy policy, int workers, int worker) {
    return auto_shard(dataset.with_auto_shard(policy), workers, worker).line;
  };
  const auto files = five.dataset().batch(2);
  const auto tensors = numbers(4).batch(2);
  EXPECT_EQ(
      line(files, AutoShardPolicy::kAuto, 2, 0),
      "input: FILE sharding (AUTO: a file reader feeds the pipeline): worker 0 of 2 reads 3 of 5 files");
  EXPECT_EQ(line(files, AutoShardPolicy::kFile, 5, 4),
            "input: FILE sharding (asked for): worker 4 of 5 reads 1 of 5 files");
  EXPECT_EQ(
      line(tensors, AutoShardPolicy::kAuto, 2, 1),
      "input: DATA sharding (AUTO: no file reader feeds the pipeline): worker 1 of 2 reads all the data "
      "and takes its rows of each batch");
  EXPECT_EQ(
      line(files, AutoShardPolicy::kAuto, 6, 1),
      "input: DATA sharding (AUTO: 5 files cannot be shared among 6 workers): worker 1 of 6 reads all the "
      "data and takes its rows of each batch");
  EXPECT_EQ(line(files, AutoShardPolicy::kData, 2, 0),
            "input: DATA sharding (asked for): worker 0 of 2 reads all the data and takes its rows of each "
            "batch");
  EXPECT_EQ(line(files, AutoShardPolicy::kOff, 2, 0),
            "input: no sharding (OFF, asked for): worker 0 of 2 trains on all the data");
  EXPECT_EQ(line(numbers(4).shard_hint().batch(2), AutoShardPolicy::kHint, 2, 1),
            "input: HINT sharding (asked for): worker 1 of 2 reads elements 1, 3, ... of those that reach "
            "shard_hint()");
}

TEST(AutoShardTest, AutoTakesFilesWhereThereAreEnough) {
  const NumberFiles files({2, 2});
  const auto chosen = [](const Dataset& dataset, int workers) {
    return auto_shard(dataset, workers, 0).chosen;
  };
  EXPECT_EQ(chosen(files.dataset().shuffle(2).batch(2).prefetch(1), 2), AutoShardPolicy::kFile);
  EXPECT_EQ(chosen(files.dataset().batch(2), 3), AutoShardPolicy::kData);
  EXPECT_EQ(chosen(numbers(4).batch(2), 2), AutoShardPolicy::kData);
  EXPECT_EQ(chosen(counted(4).batch(2), 2), AutoShardPolicy::kData);
  const Sharded few = auto_shard(files.dataset().batch(2), 3, 2);
  EXPECT_TRUE(few.global_batches);
  EXPECT_EQ(batches_of(few.dataset), batches_of(files.dataset().batch(2)));
}

TEST(AutoShardTest, RefusesWhatAPolicyCannotMean) {
  const NumberFiles files({2, 2});
  const auto refused = [](const Dataset& dataset, AutoShardPolicy policy, int workers, int worker) {
    return message_of<InvalidArgument>([&] { part(dataset, policy, workers, worker); });
  };
  EXPECT_EQ(refused(files.dataset().batch(2), AutoShardPolicy::kFile, 3, 0),
            "FILE sharding: the dataset has 2 files for 3 workers: expected at least one file for each, or "
            "AutoShardPolicy::kAuto or kData");
  EXPECT_EQ(refused(numbers(2).batch(2), AutoShardPolicy::kFile, 2, 0),
            "FILE sharding: the dataset is not read from files: begin it with Dataset::from_files(), or use "
            "AutoShardPolicy::kAuto or kData");
  EXPECT_EQ(refused(numbers(2).batch(2), AutoShardPolicy::kHint, 2, 0),
            "HINT sharding: the dataset has no shard_hint(): put it where the workers' ways part, or use "
            "AutoShardPolicy::kAuto");
  EXPECT_EQ(refused(numbers(2).shard_hint().batch(2).shard_hint(), AutoShardPolicy::kHint, 2, 0),
            "HINT sharding: the dataset has more than one shard_hint(): expected one, as each leaves out the "
            "other workers' elements");
  EXPECT_EQ(refused(numbers(2), AutoShardPolicy::kAuto, 2, 2), "input for worker 2 of 2: expected 0 to 1");
  EXPECT_THROW(auto_shard(numbers(2), 0, 0), InvalidArgument);
}

TEST(AutoShardTest, DoesNotShardTwice) {
  const NumberFiles files({2, 2, 2, 2});
  for (const auto& dataset : {files.dataset().batch(2), numbers(4).batch(2)}) {
    EXPECT_EQ(auto_shard(dataset, 2, 1).dataset.auto_shard_policy(), AutoShardPolicy::kOff);
  }
}

TEST(AutoShardTest, RebuildsEveryViewOverTheWorkersFiles) {
  const NumberFiles files({6, 5, 6, 5, 6});
  const auto chain = [](const Dataset& source) {
    return source.cache()
        .shard_hint()
        .map(keep, {.parallelism = 2})
        .shuffle(5)
        .skip(1)
        .take(9)
        .shard(2, 1)
        .repeat(2)
        .map(draw_label)
        .batch(3, {.drop_remainder = true})
        .prefetch(2);
  };
  for (int worker = 0; worker < 2; ++worker) {
    std::vector<std::string> own;
    for (std::size_t file = worker; file < files.names().size(); file += 2)
      own.push_back(files.names()[file]);
    const auto expected = chain(Dataset::from_files(own, NumberFiles::read_lines));
    const auto sharded = file_part(chain(files.dataset()), 2, worker);
    for (const std::int64_t epoch : {0, 4}) {
      const IterateOptions options{.seed = 1, .epoch = epoch};
      EXPECT_EQ(batches_of(sharded, options), batches_of(expected, options));
    }
  }
}

TEST(AutoShardTest, WorkersSeeEveryExampleOnceAndDrawTheSameForIt) {
  const NumberFiles files({7, 1, 4, 9, 3, 5, 8});
  const auto read = [](const std::string& name) {
    return NumberFiles::read_lines(name).shuffle(3).map(draw_label);
  };
  for (const bool shuffle : {false, true}) {
    // Random numbers inside the reading of a file and after it.
    const auto mix_in = [](Batch batch, ExampleRandom& random) {
      batch.y = batch.y.tensor() + random.uniform_int(1'000'000'000);
      return batch;
    };
    const auto dataset = Dataset::from_files(files.names(), read, {.shuffle = shuffle})
                             .map(mix_in, {.parallelism = 2})
                             .shuffle(6)
                             .batch(5)
                             .prefetch(1);
    for (const std::int64_t epoch : {0, 2}) {
      const IterateOptions options{.seed = 9, .epoch = epoch};
      const auto alone = drawn_by(dataset, options);
      ASSERT_EQ(alone.size(), 37u);
      for (const int workers : {2, 3, 7}) {
        std::map<std::int64_t, std::int64_t> together;
        for (int worker = 0; worker < workers; ++worker) {
          const auto own = drawn_by(
              rebatch(file_part(dataset, workers, worker), batch_sizes_for_worker(5, workers, 1, worker)),
              options);
          for (const auto& [x, y] : own) {
            EXPECT_EQ(x / 100 % workers, worker);
            EXPECT_TRUE(together.emplace(x, y).second) << x << " came to two workers";
          }
        }
        EXPECT_EQ(together, alone) << workers << " workers";
      }
    }
  }
}

TEST(AutoShardTest, WorkersReadTheirFilesInTheOrderThatAllAgreeOn) {
  const NumberFiles files({1, 1, 1, 1, 1, 1, 1});
  const auto dataset = files.dataset({.shuffle = true});
  for (const std::int64_t epoch : {0, 1, 2}) {
    const Values all = values_of(dataset, {.seed = 4, .epoch = epoch});
    for (int worker = 0; worker < 3; ++worker) {
      Values own = all;
      std::erase_if(own, [&](std::int64_t value) { return value / 100 % 3 != worker; });
      EXPECT_EQ(values_of(file_part(dataset, 3, worker), {.seed = 4, .epoch = epoch}), own);
    }
  }
}

TEST(AutoShardTest, WorkersDrawDifferentNumbersForTheirBatches) {
  const NumberFiles files({4, 4});
  const auto drawn = [&](int worker) {
    Values values;
    auto batches = file_part(files.dataset().batch(2).map(draw_label), 2, worker).iterate();
    while (const auto batch = batches.next()) values.push_back(batch->y.tensor().item<std::int64_t>());
    return values;
  };
  Values both = drawn(0);
  for (const std::int64_t value : drawn(1)) both.push_back(value);
  EXPECT_EQ(std::set(both.begin(), both.end()).size(), 4u);
}

TEST(AutoShardTest, ReadsNoneOfTheOtherWorkersFiles) {
  const NumberFiles files({2, 2, 2});
  std::set<std::string> opened;
  std::set<std::string> counted;
  const auto read = [&](const std::string& name) {
    opened.insert(name);
    return NumberFiles::load(name);
  };
  const auto count = [&](const std::string& name) {
    counted.insert(name);
    return NumberFiles::count_lines(name);
  };
  const auto own = file_part(Dataset::from_files(files.names(), read, {.count = count}).batch(2), 2, 1);
  EXPECT_EQ(own.cardinality(), 1);
  EXPECT_EQ(values_of(own), (Values{100, 101}));
  EXPECT_EQ(opened, std::set{files.names()[1]});
  EXPECT_EQ(counted, std::set{files.names()[1]});
}

TEST(AutoShardTest, KeepsOneCachePerPart) {
  const NumberFiles files({3, 3});
  std::atomic<int> opened{0};
  const auto read = [&](const std::string& name) {
    ++opened;
    return NumberFiles::read_lines(name);
  };
  const auto dataset = Dataset::from_files(files.names(), read).map(keep).cache().batch(2);
  // As fit does, which distributes the dataset anew each epoch.
  for (const std::int64_t epoch : {0, 1, 2}) {
    EXPECT_EQ(values_of(file_part(dataset, 2, 0), {.epoch = epoch}), (Values{0, 1, 2}));
    EXPECT_EQ(values_of(file_part(dataset, 2, 1), {.epoch = epoch}), (Values{100, 101, 102}));
  }
  EXPECT_EQ(opened, 2 + 2);  // two of them to find out that they do not tell their length
  EXPECT_EQ(values_of(dataset).size(), 6u);
}

TEST(AutoShardTest, GoesOnFromAPositionInTheMiddleOfAFile) {
  const NumberFiles files({9, 9, 9, 9});
  const auto own =
      rebatch(file_part(files.dataset({.shuffle = true}).map(draw_label).shuffle(4).batch(5), 2, 1),
              batch_sizes_for_worker(5, 2, 1, 1));
  const IterateOptions options{.seed = 3, .epoch = 1};
  const auto all = batches_of(own, options);
  ASSERT_EQ(all.size(), 8u);  // 18 rows in 2, 3, 2, 3, ...
  auto batches = own.iterate(options);
  for (int i = 0; i < 4; ++i) batches.next();
  const DatasetPosition position = batches.position();
  auto resumed = own.iterate({.seed = 3});
  resumed.seek(position);
  EXPECT_EQ(rest_of(resumed), (Batches(all.begin() + 4, all.end())));
}

}  // namespace
}  // namespace tandem::internal
