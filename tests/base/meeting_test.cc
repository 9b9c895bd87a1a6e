#include "base/meeting.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace tandem::internal {
namespace {

void on_threads(int n, const std::function<void(int)>& fn) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back(fn, i);
  for (auto& thread : threads) thread.join();
}

class MeetingOf : public testing::TestWithParam<int> {};

// More seats than cores too: waiting must not depend on spinning.
INSTANTIATE_TEST_SUITE_P(Seats, MeetingOf, testing::Values(1, 2, 3, 8));

TEST_P(MeetingOf, LetsNobodyPassBeforeAllHaveArrived) {
  const int seats = GetParam();
  Meeting meeting(seats);
  std::atomic<int> arrived{0};
  on_threads(seats, [&](int seat) {
    for (int round = 1; round <= 500; ++round) {
      arrived.fetch_add(1);
      meeting.arrive(seat, "first");
      EXPECT_EQ(arrived.load(), round * seats);
      meeting.arrive(seat, "second");
    }
    meeting.leave(seat);
  });
}

TEST_P(MeetingOf, WakesEveryWaiterOnAbort) {
  const int seats = GetParam();
  Meeting meeting(seats + 1);
  std::atomic<int> woken{0};
  on_threads(seats + 1, [&](int seat) {
    if (seat == seats) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      meeting.abort();
    } else {
      EXPECT_THROW(meeting.arrive(seat, "reduce"), MeetingAborted);
      woken.fetch_add(1);
    }
    meeting.leave(seat);
  });
  EXPECT_EQ(woken.load(), seats);
  EXPECT_THROW(meeting.arrive(0, "reduce"), MeetingAborted);
}

TEST(Meeting, SaysWhoReturnedWithoutTheCollective) {
  Meeting meeting(2);
  on_threads(2, [&](int seat) {
    if (seat == 0) {
      try {
        meeting.arrive(seat, "all_reduce");
        ADD_FAILURE() << "arrive() returned alone";
      } catch (const FailedPrecondition& error) {
        EXPECT_STREQ(
            error.what(),
            "replica 0 waits in all_reduce but replica 1 has returned without it: every replica must issue "
            "the same collectives in the same order");
      }
    }
    meeting.leave(seat);
  });
}

TEST(Meeting, RefusesDifferentCollectivesAtOnce) {
  Meeting meeting(2);
  std::atomic<int> refused{0};
  on_threads(2, [&](int seat) {
    try {
      meeting.arrive(seat, seat == 0 ? "all_reduce" : "minimize");
    } catch (const Error&) {
      refused.fetch_add(1);
    }
    meeting.leave(seat);
  });
  EXPECT_EQ(refused.load(), 2);
}

TEST(Meeting, IsAsNewAfterReset) {
  Meeting meeting(2);
  for (int round = 0; round < 50; ++round) {
    on_threads(2, [&](int seat) {
      if (round % 2 == 0 && seat == 0) {
        meeting.abort();
      } else if (round % 2 == 0) {
        EXPECT_THROW(meeting.arrive(seat, "x"), MeetingAborted);
      } else {
        meeting.arrive(seat, "x");
      }
      meeting.leave(seat);
    });
    meeting.reset();
  }
}

}  // namespace
}  // namespace tandem::internal
