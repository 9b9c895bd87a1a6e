#include "cluster/membership_core.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "membership/simulator.h"

namespace tandem::testing_support {
namespace {

using internal::MembershipOptions;
using std::chrono::milliseconds;

// A tenth of the full dose, which `tests/soak membership` runs.
int schedules() {
  const char* wanted = std::getenv("TANDEM_SCHEDULES");
  return wanted ? std::atoi(wanted) : 2000;
}

// Every combination of faults comes up, each with many seeds.
Faults faults_of(std::uint64_t seed) {
  const std::uint64_t bits = seed * 0x9e3779b97f4a7c15 >> 40;
  const auto bit = [&](int n) { return (bits >> n & 1) != 0; };
  return {.loss = bit(0),
          .duplicate = bit(1),
          .reorder = bit(2),
          .crash = bit(3),
          .restart = bit(4),
          .short_pause = bit(5),
          .long_pause = bit(6) && bit(7),
          .partition = bit(8) && bit(9),
          .reset = bit(10)};
}

TEST(Membership, KeepsItsPromisesUnderManySchedules) {
  int starts = 0;
  int stops = 0;
  for (int seed = 0; seed < schedules(); ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    Simulator simulator(number, faults_of(number));
    ASSERT_EQ(simulator.run(), "") << "seed " << seed;
    starts += simulator.starts();
    stops += simulator.stops();
  }
  // The schedules do exercise it.
  EXPECT_GT(starts, schedules());
  EXPECT_GT(stops, schedules() / 4);
  std::printf("%d schedules: %d starts, %d stops\n", schedules(), starts, stops);
}

// How many of some schedules go wrong when a rule is broken.
int violations(const Faults& faults, const std::function<void(MembershipOptions&)>& break_rule) {
  int count = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    count += !Simulator(seed, faults, break_rule).run().empty();
  }
  return count;
}

TEST(Membership, TheSimulatorCatchesATaskThatTrustsItsSilenceAfterAPause) {
  const Faults faults{.long_pause = true};
  EXPECT_EQ(violations(faults, {}), 0);
  EXPECT_GT(violations(faults, [](MembershipOptions& options) { options.stall = milliseconds(1'000'000); }),
            0);
}

TEST(Membership, TheSimulatorCatchesAHastySuspicion) {
  const Faults faults{.loss = true, .short_pause = true};
  EXPECT_EQ(violations(faults, {}), 0);
  EXPECT_GT(violations(faults,
                       [](MembershipOptions& options) {
                         options.suspect_after_least = milliseconds(150);
                         options.suspect_after_most = milliseconds(150);
                         options.ask_for = milliseconds(0);
                       }),
            0);
}

TEST(Membership, TheSimulatorCatchesDecisionsThatNobodyWaitsFor) {
  const Faults faults{.reorder = true, .crash = true};
  EXPECT_EQ(violations(faults, {}), 0);
  EXPECT_GT(violations(faults, [](MembershipOptions& options) { options.take_over = milliseconds(0); }), 0);
}

// Two that finish at the same time: the first to go must not look dead to the other.
TEST(Membership, ATaskThatIsDoneStaysUntilTheOthersThatAreDoneKnow) {
  const auto core_of = [](int self) {
    return internal::MembershipCore({.tasks = {{}, {}},
                                     .self = self,
                                     .incarnation = {.high = 1, .low = 1u + static_cast<unsigned>(self)}},
                                    milliseconds(0));
  };
  internal::MembershipCore a = core_of(0);
  internal::MembershipCore b = core_of(1);
  const milliseconds now(10);
  for (int i = 0; i < 4; ++i) {
    a.on_beat(now, b.beat(now));
    b.on_beat(now, a.beat(now));
  }
  ASSERT_EQ(a.phase(), internal::Phase::kRunning);
  ASSERT_EQ(b.phase(), internal::Phase::kRunning);
  b.finish(now);
  a.finish(now);
  a.on_beat(now, b.beat(now));
  EXPECT_FALSE(a.all_know(now)) << "b has not heard that a is done";
  b.on_beat(now, a.beat(now));
  a.on_beat(now, b.beat(now));
  EXPECT_TRUE(a.all_know(now));
  EXPECT_TRUE(b.all_know(now));
}

}  // namespace
}  // namespace tandem::testing_support
