#include <gtest/gtest.h>

#include <cstdio>

#include "kills/dose.h"
#include "ps/ledger_world.h"

namespace tandem::testing_support {
namespace {

// `tests/soak ps` gives 500 times as many.
int schedules() {
  return dose("TANDEM_PUSH_SCHEDULES", 2000);
}

// Every combination of faults comes up, each with many seeds.
PushFaults faults_of(std::uint64_t seed) {
  const auto bit = [&](int n) { return (seed >> n & 1) != 0; };
  return {.lose = bit(0),
          .duplicate = bit(1),
          .restart_workers = bit(2),
          .restart_ps = bit(3),
          .replay = bit(4),
          .closures = bit(5),
          .nan = bit(6)};
}

TEST(PushLedgerSchedules, EveryUpdateIsAppliedOnceAndNoneIsLostWithoutNotice) {
  long applied = 0;
  long repeats = 0;
  long refusals = 0;
  long ps_restarts = 0;
  long worker_restarts = 0;
  for (int seed = 0; seed < schedules(); ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    LedgerWorld world(number, faults_of(number));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    applied += world.applied();
    repeats += world.repeats();
    refusals += world.refusals();
    ps_restarts += world.ps_restarts();
    worker_restarts += world.worker_restarts();
  }
  std::printf(
      "%d schedules: %ld applied, %ld repeated, %ld refused, %ld restarts of workers, %ld of the ps\n",
      schedules(), applied, repeats, refusals, worker_restarts, ps_restarts);
  // The schedules do exercise it.
  EXPECT_GT(applied, schedules() * 20);
  EXPECT_GT(repeats, schedules() * 5);
  EXPECT_GT(refusals, schedules() * 5);
  EXPECT_GT(worker_restarts, schedules());
  EXPECT_GT(ps_restarts, schedules());
}

// How many of some schedules go wrong when a rule is broken.
int violations(const PushFaults& faults, BrokenRule broken) {
  int count = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) count += !LedgerWorld(seed, faults, broken).run().empty();
  return count;
}

TEST(PushLedgerSchedules, TheWorldNoticesEveryBrokenRule) {
  const auto noticed = [](const PushFaults& faults, BrokenRule broken) {
    EXPECT_EQ(violations(faults, BrokenRule::kNone), 0);
    return violations(faults, broken) > 0;
  };
  EXPECT_TRUE(noticed({.duplicate = true}, BrokenRule::kApplyRepeats));
  EXPECT_TRUE(noticed({.lose = true}, BrokenRule::kReplyBeforeRecord));
  EXPECT_TRUE(noticed({.closures = true}, BrokenRule::kIgnoreClosures));
  EXPECT_TRUE(noticed({.restart_workers = true}, BrokenRule::kAdmitGhosts));
  EXPECT_TRUE(noticed({.lose = true}, BrokenRule::kSkipGaps));
  EXPECT_TRUE(noticed({.restart_ps = true}, BrokenRule::kForgetOutOfOrder));
}

}  // namespace
}  // namespace tandem::testing_support
