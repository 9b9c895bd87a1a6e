#include "checkpoint/checkpoint_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint/support.h"
#include "support/errors.h"
#include "support/memory_disk.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::holds;
using testing_support::MemoryDisk;
using testing_support::message_of;
using testing_support::State;
using testing_support::TempFolder;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> names(FileSystem& files, const std::string& path) {
  std::vector<std::string> all;
  for (const FolderEntry& entry : files.list(path)) all.push_back(entry.name);
  std::ranges::sort(all);
  return all;
}

std::vector<std::int64_t> steps(const CheckpointStore& store) {
  std::vector<std::int64_t> all;
  for (const CheckpointId& id : store.list()) all.push_back(id.step);
  return all;
}

// A store on a disk in memory.
struct Fixture {
  explicit Fixture(CheckpointStoreOptions options = {}) : store("/run", with_disk(std::move(options))) {}

  CheckpointStoreOptions with_disk(CheckpointStoreOptions options) {
    options.files = disk;
    return options;
  }
  // Of step s the state is that of seed s.
  void save(std::int64_t step, std::int64_t generation = 1) {
    const State state(static_cast<std::uint64_t>(step));
    const SaveResult result = store.save({step, generation}, state.bytes(), R"({"epoch":1})");
    EXPECT_TRUE(result.ok()) << result.error;
  }
  std::string shard(std::int64_t step) {
    return "/run/" + CheckpointId{step, 1}.folder() + "/shard-0-of-1.safetensors";
  }
  void damage(std::int64_t step) { disk->contents(shard(step)).back() ^= 1; }

  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>();
  CheckpointStore store;
};

TEST(CheckpointStoreTest, SavesAndRestoresInOneCall) {
  const TempFolder folder;
  CheckpointStore store(folder.file("new/run/"));
  EXPECT_FALSE(store.restore([](const Checkpoint&) { FAIL(); }));
  const State state(1, 3000);  // 12 MB: more than one chunk
  const SaveResult result = store.save({1200, 7}, state.bytes(), R"({"epoch": 3})");
  ASSERT_TRUE(result.ok()) << result.error;
  EXPECT_EQ(result.folder, folder.file("new/run/step-000000001200.g000007"));
  EXPECT_GT(result.bytes, 3000u * 4096);

  PosixFileSystem files;
  EXPECT_EQ(names(files, folder.file("new/run")),
            (std::vector<std::string>{"latest", "step-000000001200.g000007"}));
  EXPECT_EQ(names(files, result.folder),
            (std::vector<std::string>{"COMMIT", "manifest.json", "shard-0-of-1.safetensors"}));
  EXPECT_EQ(read_whole_file(files, folder.file("new/run/latest"), 100), "step-000000001200.g000007\n");
  // Any reader of the format can open the shard.
  EXPECT_EQ(SafetensorsFile(files, result.folder + "/shard-0-of-1.safetensors").metadata().at("format"),
            "pt");

  const auto restored = store.restore([&](const Checkpoint& checkpoint) {
    EXPECT_TRUE(holds(checkpoint, state));
    EXPECT_EQ(checkpoint.tensors().size(), state.tensors().size());
    EXPECT_EQ(nlohmann::json::parse(checkpoint.meta())["epoch"], 3);
    checkpoint.verify(Checkpoint::From::kDisk);
  });
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->id, (CheckpointId{1200, 7}));
  EXPECT_TRUE(restored->warnings.empty());
  EXPECT_EQ(store.counts().saved, 1);
  EXPECT_EQ(store.counts().failed, 0);
}

TEST(CheckpointStoreTest, SavesShardsOfSeveralTasks) {
  const TempFolder folder;
  const State a(1, 2, "a."), b(2, 2, "b."), c(3, 2, "c.");
  const std::vector<const State*> states{&a, &b, &c};
  CheckpointStore coordinator(folder.path());
  const PendingSave pending = coordinator.begin({10, 1});
  std::vector<std::string> travelling(3);
  std::vector<std::thread> tasks;
  for (int task = 0; task < 3; ++task) {
    tasks.emplace_back([&, task] {
      const CheckpointStore store(folder.path());
      const auto index = static_cast<std::size_t>(task);
      travelling[index] = store.write_shard(pending.folder, {task, 3}, states[index]->bytes()).to_bytes();
    });
  }
  for (std::thread& task : tasks) task.join();
  // In any order.
  std::vector<ShardSummary> shards;
  for (const std::size_t i : {2, 0, 1}) shards.push_back(ShardSummary::from_bytes(travelling[i]));
  const SaveResult result = coordinator.commit(pending, shards, "{}");
  ASSERT_TRUE(result.ok()) << result.error;

  const auto restored = CheckpointStore(folder.path()).restore([&](const Checkpoint& checkpoint) {
    for (const State* state : states) EXPECT_TRUE(holds(checkpoint, *state));
    EXPECT_EQ(checkpoint.tensors().size(), 18u);
    EXPECT_EQ(checkpoint.manifest().shards[2].file(), "shard-2-of-3.safetensors");
  });
  EXPECT_TRUE(restored);
}

TEST(CheckpointStoreTest, CommitsNothingUnlessEveryShardIsHere) {
  Fixture fixture;
  fixture.save(1);
  const State a(1, 2, "a."), b(2, 2, "b.");
  const auto begin = [&] { return fixture.store.begin({2, 1}); };
  const auto write = [&](const PendingSave& pending, int index, const State& state) {
    return fixture.store.write_shard(pending.folder, {index, 2}, state.bytes());
  };
  {
    const PendingSave pending = begin();
    ShardSummary first = write(pending, 0, a), second = write(pending, 1, b);
    second.error = "cannot write \"x\": No space left on device";
    EXPECT_TRUE(has(fixture.store.commit(pending, {first, second}, "{}").error,
                    "step 2 g1 was not saved: shard-1-of-2: cannot write \"x\": No space left"));
  }
  {
    const PendingSave pending = begin();
    const ShardSummary first = write(pending, 0, a);
    ShardSummary second = write(pending, 1, b);
    fixture.disk->remove_file("/run/" + pending.folder + "/" + second.file());
    EXPECT_TRUE(
        has(fixture.store.commit(pending, {first, second}, "{}").error, "file system that all tasks share"));
  }
  {
    const PendingSave pending = begin();
    const ShardSummary first = write(pending, 0, a), second = write(pending, 1, b);
    fixture.disk->contents("/run/" + pending.folder + "/" + second.file()) += "x";
    EXPECT_TRUE(
        has(fixture.store.commit(pending, {first, second}, "{}").error, "file system that all tasks share"));
  }
  {
    const PendingSave pending = begin();
    const ShardSummary first = write(pending, 0, a);
    EXPECT_THROW(fixture.store.commit(pending, {first}, "{}"), InvalidArgument);
  }
  {
    const PendingSave pending = begin();
    const ShardSummary first = write(pending, 0, a), second = write(pending, 1, a);
    EXPECT_TRUE(has(message_of<InvalidArgument>([&] {
                      fixture.store.commit(pending, {first, second}, "{}");
                    }),
                    "\"a.steps\" is there twice"));
  }
  {
    const PendingSave pending = begin();
    const ShardSummary first = write(pending, 0, a), second = write(pending, 1, b);
    EXPECT_THROW(fixture.store.commit(pending, {first, second}, "no JSON"), InvalidArgument);
  }
  fixture.store.abandon(begin());
  EXPECT_EQ(names(*fixture.disk, "/run"), (std::vector<std::string>{"latest", "step-000000000001.g000001"}));
  EXPECT_EQ(fixture.store.counts().failed, 7);
  EXPECT_EQ(fixture.store.counts().failed_in_a_row, 7);
  fixture.save(3);
  EXPECT_EQ(fixture.store.counts().failed_in_a_row, 0);
  EXPECT_EQ(fixture.store.counts().saved, 2);
}

TEST(CheckpointStoreTest, WritesNothingForWhatTheFormatCannotHold) {
  Fixture fixture;
  const std::vector<TensorBytes> wrong{{"a/b", "F32", {0}, {}}};
  EXPECT_THROW(fixture.store.save({1, 1}, wrong, "{}"), InvalidArgument);
  EXPECT_THROW(fixture.store.save({-1, 1}, {}, "{}"), InvalidArgument);
  EXPECT_THROW(fixture.store.write_shard("../x", {}, {}), InvalidArgument);
  EXPECT_THROW(fixture.store.write_shard(".tmp-/../../x", {}, {}), InvalidArgument);
  EXPECT_TRUE(names(*fixture.disk, "/run").empty());
}

TEST(CheckpointStoreTest, ReadsPartsAndManyAtOnce) {
  const TempFolder folder;
  CheckpointStore store(folder.path());
  const State state(1, 3000);
  ASSERT_TRUE(store.save({1, 1}, state.bytes(), "{}").ok());
  const Checkpoint checkpoint = store.open({1, 1});
  const auto& large = state.tensors()[0];
  // Across the border of two chunks, from the middle of one, nothing at all, and the end.
  for (const auto& [offset, size] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 1},
                                                        {kChunkBytes - 1000, 2000},
                                                        {kChunkBytes / 2, 2 * kChunkBytes},
                                                        {77, 0},
                                                        {large.values.size() - 3, 3}}) {
    std::vector<std::byte> part(size);
    const std::vector<TensorRequest> requests{{large.name, part, offset}};
    checkpoint.read(requests);
    EXPECT_TRUE(
        std::equal(part.begin(), part.end(), large.values.begin() + static_cast<std::ptrdiff_t>(offset)));
  }
  const auto refusal = [&](std::vector<TensorRequest> requests) {
    return message_of<InvalidArgument>([&] { checkpoint.read(requests); });
  };
  std::vector<std::byte> ten(10);
  EXPECT_TRUE(has(refusal({{"no such", ten}}), "step 1 g1 has no tensor \"no such\""));
  EXPECT_TRUE(has(refusal({{"mask", ten}}), "10 bytes from byte 0 of tensor \"mask\""));
  EXPECT_TRUE(has(refusal({{"layer1.bias", ten, ~std::uint64_t{0}}}), "it has 40"));
  EXPECT_TRUE(has(refusal({{"layer1.bias", ten, 5}, {"layer1.bias", ten, 14}}), "asked for twice"));
  const std::vector<TensorRequest> halves{{"layer1.bias", std::span(ten).subspan(5), 5},
                                          {"layer1.bias", std::span(ten).first(5), 0}};
  checkpoint.read(halves);
  EXPECT_TRUE(std::equal(ten.begin(), ten.end(), state.tensors()[1].values.begin()));
}

TEST(CheckpointStoreTest, FallsBackToTheNewestWholeOne) {
  Fixture fixture;
  for (const std::int64_t step : {1000, 1100, 1200}) fixture.save(step);
  fixture.damage(1200);
  std::vector<std::int64_t> tried;
  const auto restored = fixture.store.restore([&](const Checkpoint& checkpoint) {
    tried.push_back(checkpoint.id().step);
    EXPECT_TRUE(holds(checkpoint, State(static_cast<std::uint64_t>(checkpoint.id().step))));
  });
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->id, (CheckpointId{1100, 1}));
  EXPECT_EQ(tried, (std::vector<std::int64_t>{1200, 1100}));
  ASSERT_EQ(restored->warnings.size(), 1u);
  const std::string& line = restored->warnings[0];
  EXPECT_EQ(line.find("checkpoint step 1200 g1 is damaged: shard-0-of-1 chunk 0 (steps and 4 more), crc32c "),
            0u)
      << line;
  EXPECT_TRUE(has(line, " expected ")) << line;
  EXPECT_TRUE(line.ends_with("; using step 1100 g1 (100 steps older)")) << line;
}

TEST(CheckpointStoreTest, NamesTheChunkAndItsTensor) {
  const TempFolder folder;
  CheckpointStore store(folder.path());
  const State state(1, 5000);
  ASSERT_TRUE(store.save({1, 1}, state.bytes(), "{}").ok());
  const std::string path = folder.file("step-000000000001.g000001/shard-0-of-1.safetensors");
  {
    std::FILE* file = std::fopen(path.c_str(), "r+b");
    std::fseek(file, 3 * static_cast<long>(kChunkBytes) + 5, SEEK_SET);
    std::fputc('!', file);
    std::fclose(file);
  }
  const Checkpoint checkpoint = store.open({1, 1});
  const std::string line = message_of<DataLoss>([&] { checkpoint.verify(); });
  EXPECT_EQ(line.find("checkpoint step 1 g1 is damaged: shard-0-of-1 chunk 3 (layer1.weight), crc32c "), 0u)
      << line;
  // What lies elsewhere can still be read.
  std::vector<std::byte> bias(40);
  const std::vector<TensorRequest> requests{{"layer1.bias", bias}};
  checkpoint.read(requests);
  EXPECT_EQ(bias, state.tensors()[1].values);
}

TEST(CheckpointStoreTest, GivesUpAfterTooManyDamagedOnes) {
  Fixture fixture({.keep = 0});
  for (const std::int64_t step : {1, 2, 3, 4}) fixture.save(step);
  for (const std::int64_t step : {2, 3, 4}) fixture.damage(step);
  const auto load = [](const Checkpoint& checkpoint) { checkpoint.verify(); };
  const std::string line = message_of<NoUsableCheckpoint>([&] { fixture.store.restore(load); });
  EXPECT_TRUE(has(line, "no usable checkpoint in \"/run\": 3 damaged")) << line;
  EXPECT_TRUE(has(line, "checkpoint step 4 g1 is damaged: shard-0-of-1 chunk 0")) << line;
  const CheckpointStore patient("/run", {.max_fallback = 3, .files = fixture.disk});
  EXPECT_EQ(patient.find_whole()->id.step, 1);
  EXPECT_EQ(patient.find_whole()->warnings.size(), 3u);
}

// Starting from nothing would overwrite what may still be saved by hand.
TEST(CheckpointStoreTest, GivesUpWhenAllAreDamaged) {
  Fixture fixture;
  fixture.save(1);
  fixture.damage(1);
  EXPECT_THROW(fixture.store.find_whole(), NoUsableCheckpoint);
}

TEST(CheckpointStoreTest, PassesOnWhatIsNoDamage) {
  Fixture fixture;
  fixture.save(1);
  EXPECT_THROW(fixture.store.restore([](const Checkpoint&) { throw InvalidArgument("shapes differ"); }),
               InvalidArgument);
  EXPECT_TRUE(has(message_of<NotFound>([&] {
                    fixture.store.open({2, 1});
                  }),
                  "no checkpoint step 2 g1 in \"/run\""));
}

TEST(CheckpointStoreTest, TakesTheHighestStepThenTheHighestGeneration) {
  Fixture fixture;
  fixture.save(5, 3);
  fixture.save(7, 1);
  fixture.save(7, 2);
  fixture.save(6, 9);
  EXPECT_EQ(fixture.store.find_whole()->id, (CheckpointId{7, 2}));
  EXPECT_EQ(steps(fixture.store), (std::vector<std::int64_t>{7, 7, 6, 5}));
}

TEST(CheckpointStoreTest, ReplacesOneOfTheSameStep) {
  for (const bool can_exchange : {true, false}) {
    Fixture fixture;
    if (!can_exchange) fixture.disk->refuse_exchange();
    fixture.save(1);
    const State other(77);
    ASSERT_TRUE(fixture.store.save({1, 1}, other.bytes(), "{}").ok());
    EXPECT_TRUE(holds(fixture.store.open({1, 1}), other));
    EXPECT_EQ(names(*fixture.disk, "/run"),
              (std::vector<std::string>{"latest", "step-000000000001.g000001"}));
    // A damaged one is replaced as well.
    fixture.damage(1);
    fixture.save(1);
    EXPECT_TRUE(holds(fixture.store.open({1, 1}), State(1)));
  }
}

TEST(CheckpointStoreTest, IgnoresWhatHasAnotherName) {
  Fixture fixture;
  fixture.save(1);
  for (const char* name : {"/run/.tmp-dead", "/run/.trash-dead", "/run/step-2", "/run/notes"}) {
    fixture.disk->create_folder(name);
  }
  fixture.disk->create_file("/run/step-000000000009.g000001");
  EXPECT_EQ(steps(fixture.store), (std::vector<std::int64_t>{1}));
  // The first save of a process removes what dead ones left, and nothing else.
  CheckpointStore next("/run", {.files = fixture.disk});
  ASSERT_TRUE(next.save({2, 1}, State(2).bytes(), "{}").ok());
  EXPECT_EQ(names(*fixture.disk, "/run"),
            (std::vector<std::string>{"latest", "notes", "step-000000000001.g000001",
                                      "step-000000000002.g000001", "step-000000000009.g000001", "step-2"}));
}

TEST(CheckpointStoreTest, KeepsTheNewest) {
  Fixture fixture({.keep = 2});
  for (std::int64_t step = 1; step <= 5; ++step) {
    fixture.save(step);
    const Pruned pruned = fixture.store.prune();
    EXPECT_TRUE(pruned.warnings.empty());
    EXPECT_EQ(pruned.removed.size(), step > 2 ? 1u : 0u);
  }
  EXPECT_EQ(steps(fixture.store), (std::vector<std::int64_t>{5, 4}));
  EXPECT_EQ(names(*fixture.disk, "/run").size(), 3u);
  Fixture all({.keep = 0});
  for (std::int64_t step = 1; step <= 5; ++step) all.save(step);
  EXPECT_TRUE(all.store.prune().removed.empty());
}

TEST(CheckpointStoreTest, RemovesNothingForANewestOneThatDoesNotReadBack) {
  Fixture fixture({.keep = 1});
  fixture.save(1);
  fixture.save(2);
  fixture.damage(2);
  const Pruned pruned = fixture.store.prune();
  EXPECT_TRUE(pruned.removed.empty());
  ASSERT_EQ(pruned.warnings.size(), 1u);
  EXPECT_TRUE(has(pruned.warnings[0], "step 2 g1 is damaged")) << pruned.warnings[0];
  EXPECT_EQ(steps(fixture.store), (std::vector<std::int64_t>{2, 1}));
  // The damaged one does not count, and goes when it is older than what is kept.
  fixture.save(3);
  EXPECT_EQ(fixture.store.prune().removed.size(), 2u);
  EXPECT_EQ(steps(fixture.store), (std::vector<std::int64_t>{3}));
}

// After a fallback the run saves steps below that of the damaged one.
TEST(CheckpointStoreTest, KeepsWhatIsNewerThanADamagedRunAhead) {
  Fixture fixture({.keep = 2});
  fixture.save(10);
  fixture.save(20);
  fixture.damage(20);
  EXPECT_EQ(fixture.store.find_whole()->id.step, 10);
  for (const std::int64_t step : {12, 14, 16}) fixture.save(step, 2);
  fixture.store.prune();
  EXPECT_EQ(steps(fixture.store), (std::vector<std::int64_t>{20, 16, 14}));
}

TEST(CheckpointStoreTest, KeepsOneEveryNowAndThen) {
  std::int64_t now = 1'000'000;
  Fixture fixture({.keep = 2, .keep_every = std::chrono::hours(1), .clock = [&] { return now; }});
  for (std::int64_t step = 0; step <= 20; ++step, now += 1200) {
    fixture.save(step);
    fixture.store.prune();
  }
  // Three an hour: every third of the old ones, and the two newest.
  EXPECT_EQ(steps(fixture.store), (std::vector<std::int64_t>{20, 19, 18, 15, 12, 9, 6, 3, 0}));
  // Another process comes to the same answer.
  CheckpointStore next(
      "/run",
      {.keep = 2, .keep_every = std::chrono::hours(1), .files = fixture.disk, .clock = [&] { return now; }});
  EXPECT_TRUE(next.prune().removed.empty());
}

TEST(CheckpointStoreTest, SignsWithAKey) {
  Fixture fixture({.key = "the cluster's"});
  fixture.save(1);
  EXPECT_EQ(fixture.store.find_whole()->id.step, 1);
  const auto refusal = [&](const std::string& key) {
    const CheckpointStore store("/run", {.key = key, .files = fixture.disk});
    return message_of<NoUsableCheckpoint>([&] { store.find_whole(); });
  };
  EXPECT_TRUE(has(refusal("another"), "not of this key"));
  EXPECT_NO_THROW(CheckpointStore("/run", {.files = fixture.disk}).find_whole());
  // Who has no key can save, but not for those who have.
  CheckpointStore forger("/run", {.files = fixture.disk});
  ASSERT_TRUE(forger.save({1, 1}, State(9).bytes(), "{}").ok());
  EXPECT_TRUE(has(refusal("the cluster's"), "COMMIT has no hmac-sha256"));
}

// Other values with the same crc32c are easy to make: a multiple of its polynomial is added.
TEST(CheckpointStoreTest, FindsForgedValuesWithTheKey) {
  Fixture fixture({.key = "the cluster's"});
  fixture.save(1);
  const Checkpoint signed_one = fixture.store.open({1, 1});
  std::string& shard = fixture.disk->contents(fixture.shard(1));
  const std::uint64_t forgery = 1 | (std::uint64_t{0x82f63b78} << 1);
  for (std::size_t i = 0; i < 8; ++i) shard[shard.size() - 8 + i] ^= static_cast<char>(forgery >> (8 * i));
  EXPECT_NO_THROW(CheckpointStore("/run", {.files = fixture.disk}).open({1, 1}).verify());
  EXPECT_TRUE(has(message_of<DataLoss>([&] { signed_one.verify(); }), "chunk 0 (steps and 4 more), sha256 "));
}

TEST(CheckpointStoreTest, NeedsTheKeyOnEveryTask) {
  Fixture fixture({.key = "the cluster's"});
  const PendingSave pending = fixture.store.begin({2, 1});
  const CheckpointStore keyless("/run", {.files = fixture.disk});
  const ShardSummary summary = keyless.write_shard(pending.folder, {}, State(2).bytes());
  EXPECT_TRUE(has(message_of<InvalidArgument>([&] { fixture.store.commit(pending, {summary}, "{}"); }),
                  "without the key"));
}

// A disk that is full, or broken, from any call on: the save says so, what was there stays, and once there is
// room again the next save works.
TEST(CheckpointStoreTest, SurvivesADiskThatFailsAtAnyCall) {
  for (const int reason : {ENOSPC, EIO}) {
    int failures = 0;
    for (int first = 0;; ++first) {
      Fixture fixture({.keep = 1});
      fixture.save(1);
      const int begin = fixture.disk->calls() + first;
      int failed_calls = 0;
      fixture.disk->set_fault([&](MemoryDisk::Call call, int number) {
        const bool takes_room = call != MemoryDisk::Call::kRemove;
        if (number < begin || !(takes_room || reason == EIO)) return 0;
        ++failed_calls;
        return reason;
      });
      const SaveResult result = fixture.store.save({2, 1}, State(2).bytes(), "{}");
      fixture.store.prune();
      fixture.disk->set_fault({});
      if (failed_calls == 0) break;
      if (!result.ok()) {
        ++failures;
        EXPECT_TRUE(has(result.error, "checkpoint step 2 g1 was not saved: ")) << result.error;
        EXPECT_TRUE(has(result.error, std::strerror(reason))) << result.error;
        EXPECT_EQ(fixture.store.counts().failed_in_a_row, 1);
        if (reason == ENOSPC) {
          for (const std::string& name : names(*fixture.disk, "/run"))
            EXPECT_FALSE(name.starts_with(".tmp-")) << first;
        }
      }
      CheckpointStore after("/run", {.keep = 1, .files = fixture.disk});
      const auto restored = after.restore([&](const Checkpoint& checkpoint) {
        EXPECT_TRUE(holds(checkpoint, State(static_cast<std::uint64_t>(checkpoint.id().step))));
      });
      ASSERT_TRUE(restored) << "call " << first;
      EXPECT_TRUE(restored->warnings.empty()) << "call " << first;
      EXPECT_TRUE(!result.ok() || restored->id.step == 2) << "call " << first;
      EXPECT_TRUE(after.save({3, 1}, State(3).bytes(), "{}").ok());
      EXPECT_FALSE(after.prune().removed.empty());
      EXPECT_EQ(names(*fixture.disk, "/run"),
                (std::vector<std::string>{"latest", "step-000000000003.g000001"}));
    }
    EXPECT_GT(failures, 10);
  }
}

}  // namespace
}  // namespace tandem::internal
