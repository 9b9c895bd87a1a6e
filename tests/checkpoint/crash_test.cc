// The machine stops after each of the calls that a save and a removal make, and has lost, kept or mixed what
// was not synced: what is then found is the old state or the new one, whole, without a word of damage.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "checkpoint/support.h"
#include "support/memory_disk.h"

namespace tandem::internal {
namespace {

using testing_support::Crash;
using testing_support::holds;
using testing_support::MemoryDisk;
using testing_support::State;

using Disk = std::shared_ptr<MemoryDisk>;

constexpr std::uint64_t kMixtures = 20;

State state_of(std::int64_t step) {
  return State(static_cast<std::uint64_t>(step));
}

struct Scenario {
  // What is there before, all of it synced.
  std::function<void(const Disk&)> before;
  // What the machine stops in. Tells when it has promised something.
  std::function<void(const Disk&, const std::function<void()>& promise)> action;
  // Looks at the disk after the next start. `promised`: the action had come that far.
  std::function<void(const Disk&, bool promised)> after;
};

void crash_after_every_call(const Scenario& scenario) {
  int crashes = 0;
  for (int calls = 1;; ++calls) {
    const auto disk = std::make_shared<MemoryDisk>();
    scenario.before(disk);
    disk->crash_after(calls);
    bool crashed = false, promised = false;
    try {
      scenario.action(disk, [&] { promised = true; });
    } catch (const Crash&) {
      crashed = true;
    }
    // Also without a crash in between: the machine may stop right after.
    const auto look = [&](MemoryDisk::Unsynced unsynced, std::uint64_t seed) {
      SCOPED_TRACE(testing::Message() << "after call " << calls << ", unsynced " << static_cast<int>(unsynced)
                                      << ", seed " << seed);
      scenario.after(disk->after_crash(unsynced, seed), promised);
    };
    look(MemoryDisk::Unsynced::kLost, 0);
    look(MemoryDisk::Unsynced::kKept, 0);
    for (std::uint64_t seed = 0; seed < kMixtures; ++seed) look(MemoryDisk::Unsynced::kSome, seed);
    if (testing::Test::HasFailure()) return;
    if (!crashed) break;
    ++crashes;
  }
  EXPECT_GT(crashes, 10);
}

std::optional<Restored> restore(const Disk& disk) {
  return CheckpointStore("/run", {.files = disk}).restore([](const Checkpoint& checkpoint) {
    EXPECT_TRUE(holds(checkpoint, state_of(checkpoint.id().step)));
    checkpoint.verify();
  });
}

// Whatever was left: the next run saves, removes and leaves nothing behind.
void expect_next_save_works(const Disk& disk) {
  CheckpointStore store("/run", {.keep = 1, .files = disk});
  ASSERT_TRUE(store.save({100, 2}, state_of(100).bytes(), "{}").ok());
  EXPECT_TRUE(store.prune().warnings.empty());
  EXPECT_EQ(restore(disk)->id.step, 100);
  EXPECT_EQ(disk->list("/run").size(), 2u);  // it and the hint
}

void save(const Disk& disk, std::int64_t step) {
  CheckpointStore store("/run", {.keep = 0, .files = disk});
  ASSERT_TRUE(store.save({step, 1}, state_of(step).bytes(), "{}").ok());
}

TEST(CrashAfterEveryCall, OfTheFirstSave) {
  crash_after_every_call({.before = [](const Disk&) {},
                          .action =
                              [](const Disk& disk, const auto& promise) {
                                save(disk, 2);
                                promise();
                              },
                          .after =
                              [](const Disk& disk, bool promised) {
                                const auto restored = restore(disk);
                                ASSERT_TRUE(restored || !promised);
                                EXPECT_TRUE(!restored || restored->warnings.empty());
                                expect_next_save_works(disk);
                              }});
}

TEST(CrashAfterEveryCall, OfASaveAndTheRemovalOfTheOneBefore) {
  crash_after_every_call({.before = [](const Disk& disk) { save(disk, 1); },
                          .action =
                              [](const Disk& disk, const auto& promise) {
                                CheckpointStore store("/run", {.keep = 1, .files = disk});
                                ASSERT_TRUE(store.save({2, 1}, state_of(2).bytes(), "{}").ok());
                                promise();
                                EXPECT_EQ(store.prune().removed.size(), 1u);
                              },
                          .after =
                              [](const Disk& disk, bool promised) {
                                const auto restored = restore(disk);
                                ASSERT_TRUE(restored);
                                EXPECT_TRUE(restored->warnings.empty()) << restored->warnings[0];
                                EXPECT_TRUE(!promised || restored->id.step == 2);
                                expect_next_save_works(disk);
                              }});
}

TEST(CrashAfterEveryCall, OfASaveOfSeveralTasks) {
  const State a(1, 2, "a."), b(2, 2, "b.");
  crash_after_every_call(
      {.before = [](const Disk& disk) { save(disk, 1); },
       .action =
           [&](const Disk& disk, const auto& promise) {
             CheckpointStore coordinator("/run", {.files = disk});
             const CheckpointStore other("/run", {.files = disk});
             const PendingSave pending = coordinator.begin({2, 1});
             std::vector<ShardSummary> shards{coordinator.write_shard(pending.folder, {0, 2}, a.bytes()),
                                              other.write_shard(pending.folder, {1, 2}, b.bytes())};
             ASSERT_TRUE(coordinator.commit(pending, shards, "{}").ok());
             promise();
           },
       .after =
           [&](const Disk& disk, bool promised) {
             const auto restored =
                 CheckpointStore("/run", {.files = disk}).restore([&](const Checkpoint& checkpoint) {
                   const bool is_new = checkpoint.id().step == 2;
                   EXPECT_TRUE(is_new ? holds(checkpoint, a) && holds(checkpoint, b)
                                      : holds(checkpoint, state_of(1)));
                 });
             ASSERT_TRUE(restored);
             EXPECT_TRUE(restored->warnings.empty()) << restored->warnings[0];
             EXPECT_TRUE(!promised || restored->id.step == 2);
             expect_next_save_works(disk);
           }});
}

// The same step again, with other values.
void replace(const Disk& disk, const std::function<void()>& promise) {
  CheckpointStore store("/run", {.files = disk});
  ASSERT_TRUE(store.save({1, 1}, state_of(77).bytes(), R"({"replaced":true})").ok());
  promise();
}

bool holds_one_of_both(const Checkpoint& checkpoint, bool must_be_new) {
  const bool is_new = checkpoint.meta() != "{}";
  return (is_new || !must_be_new) && holds(checkpoint, state_of(is_new ? 77 : 1));
}

TEST(CrashAfterEveryCall, OfASaveThatReplacesAnother) {
  crash_after_every_call(
      {.before = [](const Disk& disk) { save(disk, 1); },
       .action = replace,
       .after =
           [](const Disk& disk, bool promised) {
             const auto restored =
                 CheckpointStore("/run", {.files = disk}).restore([&](const Checkpoint& checkpoint) {
                   EXPECT_TRUE(holds_one_of_both(checkpoint, promised));
                 });
             ASSERT_TRUE(restored);
             EXPECT_TRUE(restored->warnings.empty()) << restored->warnings[0];
             expect_next_save_works(disk);
           }});
}

// Where two names cannot be exchanged there is a moment without the step; the one before is there.
TEST(CrashAfterEveryCall, OfASaveThatReplacesAnotherWithoutExchange) {
  crash_after_every_call(
      {.before =
           [](const Disk& disk) {
             disk->refuse_exchange();
             save(disk, 0);
             save(disk, 1);
           },
       .action = replace,
       .after =
           [](const Disk& disk, bool promised) {
             const auto restored =
                 CheckpointStore("/run", {.files = disk}).restore([&](const Checkpoint& checkpoint) {
                   EXPECT_TRUE(checkpoint.id().step == 0 ? holds(checkpoint, state_of(0))
                                                         : holds_one_of_both(checkpoint, promised));
                 });
             ASSERT_TRUE(restored);
             EXPECT_TRUE(restored->warnings.empty()) << restored->warnings[0];
             EXPECT_TRUE(!promised || restored->id.step == 1);
             expect_next_save_works(disk);
           }});
}

TEST(CrashAfterEveryCall, OfAPlainFileThatIsReplaced) {
  const auto write = [](const Disk& disk, std::int64_t step) {
    write_safetensors(*disk, "/weights", state_of(step).bytes(), {{"step", std::to_string(step)}});
  };
  const auto read_back = [](const Disk& disk) {
    const SafetensorsFile file(*disk, "/weights");
    const std::int64_t step = std::stoll(file.metadata().at("step"));
    const State state = state_of(step);
    for (const auto& tensor : state.tensors()) {
      std::vector<std::byte> values(tensor.values.size());
      file.read(*file.find(tensor.name), values);
      EXPECT_EQ(values, tensor.values);
    }
    return step;
  };
  for (int calls = 1; calls < 6; ++calls) {
    const auto disk = std::make_shared<MemoryDisk>();
    write(disk, 1);
    disk->crash_after(calls);
    bool promised = false;
    try {
      write(disk, 2);
      promised = true;
    } catch (const Crash&) {
    }
    EXPECT_EQ(promised, calls > 5);
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const std::int64_t step = read_back(disk->after_crash(MemoryDisk::Unsynced::kSome, seed));
      EXPECT_TRUE(step == 2 || (step == 1 && !promised)) << calls << " " << seed;
    }
  }
}

}  // namespace
}  // namespace tandem::internal
