#include "ps/staleness.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tandem::internal::ps {
namespace {

TEST(WorkerClocks, WithoutABoundNobodyWaits) {
  WorkerClocks clocks(std::nullopt);
  clocks.join(0);
  clocks.join(1);
  EXPECT_TRUE(clocks.may_start(0, 1'000'000));
  EXPECT_FALSE(clocks.may_start(2, 0)) << "it is not there";
}

TEST(WorkerClocks, WithAStalenessOfZeroAllStepTogether) {
  WorkerClocks clocks(0);
  clocks.join(0);
  clocks.join(1);
  EXPECT_TRUE(clocks.may_start(0, 0));
  clocks.finished(0, 0);
  EXPECT_FALSE(clocks.may_start(0, 1));
  EXPECT_TRUE(clocks.may_start(1, 0));
  clocks.finished(1, 0);
  EXPECT_TRUE(clocks.may_start(0, 1));
}

TEST(WorkerClocks, AWorkerIsAtMostTheStalenessAhead) {
  WorkerClocks clocks(2);
  clocks.join(0);
  clocks.join(1);
  for (std::uint64_t step = 0; step < 3; ++step) {
    EXPECT_TRUE(clocks.may_start(0, step));
    clocks.finished(0, step);
  }
  EXPECT_FALSE(clocks.may_start(0, 3));
  EXPECT_EQ(clocks.spread(), 3u);
  clocks.finished(1, 0);
  EXPECT_TRUE(clocks.may_start(0, 3));
}

TEST(WorkerClocks, NobodyWaitsForAWorkerThatIsGone) {
  WorkerClocks clocks(0);
  clocks.join(0);
  clocks.join(1);
  for (std::uint64_t step = 0; step < 5; ++step) clocks.finished(0, step);
  EXPECT_FALSE(clocks.may_start(0, 5));
  clocks.leave(1);
  EXPECT_TRUE(clocks.may_start(0, 5));
  EXPECT_EQ(clocks.join(1), 5u) << "whoever comes begins with the others";
  EXPECT_EQ(clocks.live(), (std::vector<int>{0, 1}));
  clocks.leave(0);
  clocks.leave(1);
  EXPECT_EQ(clocks.join(2), 5u) << "also when all were gone";
  EXPECT_EQ(clocks.join(0, 3), 3u) << "unless it knows better";
  EXPECT_EQ(clocks.slowest(), 3u);
  clocks.finished(7, 9);
  EXPECT_EQ(clocks.live(), (std::vector<int>{0, 2}));
}

// Random workers that keep to may_start(): the bound holds and somebody can always go on.
TEST(WorkerClocks, TheBoundHoldsAndNobodyIsStuckUnderAnySchedule) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::uint64_t draw = 0;
    const auto below = [&](std::uint64_t n) { return seed_of_stream(seed, ++draw) % n; };
    const std::uint64_t staleness = below(4);
    WorkerClocks clocks(staleness);
    std::map<int, std::uint64_t> steps;
    for (int i = 0; i < 300; ++i) {
      const int worker = static_cast<int>(below(5));
      if (!steps.contains(worker) || below(30) == 0) {
        steps[worker] = clocks.join(worker);
      } else if (below(40) == 0) {
        clocks.leave(worker);
        steps.erase(worker);
      } else if (clocks.may_start(worker, steps[worker])) {
        for (const auto& [other, step] : steps) ASSERT_LE(steps[worker], step + staleness) << seed;
        clocks.finished(worker, steps[worker]++);
      }
      bool some = steps.empty();
      for (const auto& [other, step] : steps) some |= clocks.may_start(other, step);
      ASSERT_TRUE(some) << seed;
    }
  }
}

TEST(WorkerClocks, WhoIsBehindCanBeCaughtUp) {
  WorkerClocks clocks(0);
  for (const int worker : {0, 1, 2}) clocks.join(worker);
  clocks.finished(0, 0);
  clocks.finished(1, 0);
  EXPECT_FALSE(clocks.may_start(0, 1));
  clocks.catch_up(1);
  EXPECT_TRUE(clocks.may_start(0, 1));
  EXPECT_TRUE(clocks.may_start(2, 1));
  EXPECT_EQ(clocks.busy_with(0), std::vector<int>());
  clocks.finished(2, 0);
  EXPECT_EQ(clocks.slowest(), 1u) << "an old step changes nothing";
}

TEST(WholeStep, IsWholeWhenEveryLiveWorkerHasPushed) {
  WholeStep whole;
  const std::vector<int> live{0, 1, 2};
  EXPECT_FALSE(whole.whole(live));
  EXPECT_EQ(whole.offer(2, 0), WholeStep::Offer::kHeld);
  EXPECT_EQ(whole.offer(0, 0), WholeStep::Offer::kHeld);
  EXPECT_EQ(whole.offer(0, 0), WholeStep::Offer::kHeld) << "sent again";
  EXPECT_FALSE(whole.whole(live));
  EXPECT_EQ(whole.offer(1, 1), WholeStep::Offer::kEarly);
  EXPECT_EQ(whole.offer(1, 0), WholeStep::Offer::kHeld);
  EXPECT_EQ(whole.whole(live), (std::vector<int>{0, 1, 2})) << "in the order of the workers";
  whole.advance();
  EXPECT_EQ(whole.step(), 1u);
  EXPECT_EQ(whole.offer(2, 0), WholeStep::Offer::kLate);
}

TEST(WholeStep, ADeadWorkerIsNotWaitedForAndWhatItSentCounts) {
  WholeStep whole(4);
  whole.offer(0, 4);
  whole.offer(2, 4);
  EXPECT_FALSE(whole.whole(std::vector<int>{0, 1}));
  EXPECT_EQ(whole.whole(std::vector<int>{0}), (std::vector<int>{0, 2}));
  whole.drop(2);
  EXPECT_EQ(whole.whole(std::vector<int>{0}), (std::vector<int>{0}));
  whole.drop(0);
  EXPECT_FALSE(whole.whole(std::vector<int>{})) << "nothing is no step";
}

TEST(WholeStep, BackupWorkersComeTooLate) {
  WholeStep whole(0, 2);
  const std::vector<int> live{0, 1, 2};
  whole.offer(2, 0);
  EXPECT_FALSE(whole.whole(live));
  EXPECT_EQ(whole.whole(std::vector<int>{2}), (std::vector<int>{2})) << "when fewer live, all of them";
  whole.offer(0, 0);
  EXPECT_EQ(whole.whole(live), (std::vector<int>{0, 2}));
  whole.advance();
  EXPECT_EQ(whole.offer(1, 0), WholeStep::Offer::kLate);
}

}  // namespace
}  // namespace tandem::internal::ps
