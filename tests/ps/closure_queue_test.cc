#include "ps/closure_queue.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "kills/dose.h"

namespace tandem::internal::ps {
namespace {

using testing_support::dose;

TEST(ClosureQueue, BeginsClosuresInTheOrderInWhichTheyWereScheduled) {
  ClosureQueue queue;
  for (std::uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(queue.schedule(), i);
  EXPECT_EQ(queue.take(7), 1u);
  EXPECT_EQ(queue.take(2), 2u);
  EXPECT_EQ(queue.finish(7), 1u);
  EXPECT_EQ(queue.take(7), 3u);
  EXPECT_EQ(queue.take(0), std::nullopt);
  EXPECT_EQ(queue.running_on(2), 2u);
  EXPECT_FALSE(queue.idle());
  queue.finish(2);
  queue.finish(7);
  EXPECT_TRUE(queue.idle());
}

TEST(ClosureQueue, RunsWhatALostWorkerHadBeforeAllThatWereNeverBegun) {
  ClosureQueue queue;
  for (int i = 0; i < 4; ++i) queue.schedule();
  queue.take(0);
  queue.take(1);
  EXPECT_EQ(queue.lose(1).closure, 2u);
  EXPECT_EQ(queue.lose(0).closure, 1u);
  EXPECT_EQ(queue.take(2), 1u);
  EXPECT_EQ(queue.take(1), 2u);
  EXPECT_EQ(queue.take(0), 3u);
}

TEST(ClosureQueue, IsFullWhenSoManyHaveNotBeenBegun) {
  ClosureQueue queue(1, 2);
  queue.schedule();
  EXPECT_FALSE(queue.full());
  queue.schedule();
  EXPECT_TRUE(queue.full());
  queue.take(0);
  EXPECT_FALSE(queue.full());
}

TEST(ClosureQueue, AFailureCancelsWhatWaitsAndWhatComesBackButNotWhatRuns) {
  ClosureQueue queue;
  for (int i = 0; i < 5; ++i) queue.schedule();
  for (const int worker : {0, 1, 2}) queue.take(worker);
  queue.finish(0);
  EXPECT_EQ(queue.fail(), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_TRUE(queue.lose(1).cancelled);
  EXPECT_EQ(queue.running(), 1u);
  EXPECT_EQ(queue.finish(2), 3u);
  queue.clear_failure();
  EXPECT_EQ(queue.schedule(), 6u);
  EXPECT_EQ(queue.take(1), 6u);
}

TEST(ClosureQueue, KnowsBelowWhichNumberAllAreOver) {
  ClosureQueue queue(100);
  EXPECT_EQ(queue.settled_below(), 100u);
  for (int i = 0; i < 3; ++i) queue.schedule();
  queue.take(0);
  queue.take(1);
  queue.finish(1);  // 101, before 100
  EXPECT_EQ(queue.settled_below(), 100u);
  queue.lose(0);
  EXPECT_EQ(queue.settled_below(), 100u);
  queue.take(1);
  queue.finish(1);
  EXPECT_EQ(queue.settled_below(), 102u);
}

// What became of each closure, kept the simple way.
struct Fates {
  enum class Fate { kWaits, kReturned, kRuns, kDone, kCancelled };
  std::map<std::uint64_t, Fate> of;

  std::uint64_t count(Fate fate) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(of, [&](const auto& each) { return each.second == fate; }));
  }
  std::uint64_t first(Fate fate) const {
    const auto found = std::ranges::find_if(of, [&](const auto& each) { return each.second == fate; });
    return found == of.end() ? 0 : found->first;
  }
  std::uint64_t settled_below(std::uint64_t next) const {
    const auto found = std::ranges::find_if(
        of, [](const auto& each) { return each.second != Fate::kDone && each.second != Fate::kCancelled; });
    return found == of.end() ? next : found->first;
  }
};

TEST(ClosureQueueSchedules, EveryClosureIsOverOnceAndInOrder) {
  using Fate = Fates::Fate;
  constexpr int kWorkers = 4;
  const int schedules = dose("TANDEM_CLOSURE_SCHEDULES", 1000);
  long done = 0;
  long lost = 0;
  long cancelled = 0;
  for (int seed = 0; seed < schedules; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const std::uint64_t first = 1 + random() % 3 * 1000;
    const std::size_t capacity = 1 + random() % 8;
    ClosureQueue queue(first, capacity);
    Fates fates;
    std::uint64_t next = first;
    const auto over = [&](std::uint64_t closure, Fate fate) {
      ASSERT_TRUE(fates.of.contains(closure));
      ASSERT_NE(fates.of[closure], Fate::kDone) << "over twice";
      ASSERT_NE(fates.of[closure], Fate::kCancelled) << "over twice";
      fates.of[closure] = fate;
    };
    for (int event = 0; event < 200; ++event) {
      const int worker = static_cast<int>(random() % kWorkers);
      const auto running = queue.running_on(worker);
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          if (queue.full() || queue.failed()) break;
          ASSERT_EQ(queue.schedule(), next);
          fates.of[next++] = Fate::kWaits;
          break;
        case 3:
        case 4: {
          if (running) break;
          const auto taken = queue.take(worker);
          std::uint64_t expected = fates.first(Fate::kReturned);
          if (expected == 0) expected = fates.first(Fate::kWaits);
          ASSERT_EQ(taken.value_or(0), expected) << "seed " << seed;
          if (taken) fates.of[*taken] = Fate::kRuns;
          break;
        }
        case 5:
          if (!running) break;
          ASSERT_EQ(queue.finish(worker), *running);
          over(*running, Fate::kDone);
          ++done;
          break;
        case 6: {
          if (!running) break;
          const bool failed = queue.failed();
          const auto gone = queue.lose(worker);
          ASSERT_EQ(gone.closure, *running);
          ASSERT_EQ(gone.cancelled, failed);
          over(gone.closure, failed ? Fate::kCancelled : Fate::kReturned);
          ++lost;
          break;
        }
        case 7:
          if (random() % 4 == 0) {
            for (const std::uint64_t closure : queue.fail()) {
              ASSERT_NE(fates.of[closure], Fate::kRuns);
              over(closure, Fate::kCancelled);
              ++cancelled;
            }
            ASSERT_EQ(queue.queued(), 0u);
          } else if (queue.failed() && queue.running() == 0) {
            queue.clear_failure();
          }
          break;
      }
      const std::uint64_t waiting = fates.count(Fate::kWaits) + fates.count(Fate::kReturned);
      ASSERT_EQ(queue.queued(), waiting);
      ASSERT_EQ(queue.full(), waiting >= capacity);
      ASSERT_EQ(queue.running(), fates.count(Fate::kRuns));
      ASSERT_EQ(queue.idle(), waiting + queue.running() == 0);
      ASSERT_EQ(queue.settled_below(), fates.settled_below(next)) << "seed " << seed;
    }
  }
  std::printf("%d schedules: %ld done, %ld given back, %ld cancelled\n", schedules, done, lost, cancelled);
  EXPECT_GT(done, schedules * 5);
  EXPECT_GT(lost, schedules * 5);
  EXPECT_GT(cancelled, schedules);
}

}  // namespace
}  // namespace tandem::internal::ps
