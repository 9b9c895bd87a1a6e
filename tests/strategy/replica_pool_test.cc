#include <dirent.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ctime>
#include <stdexcept>
#include <thread>

#include "support/training.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"

namespace tandem {
namespace {

using testing_support::mirrored;

int count_threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (readdir(folder)) ++count;
  closedir(folder);
  return count - 2;  // . and ..
}

TEST(Run, KeepsItsThreadsFromCallToCall) {
  const auto strategy = mirrored(3);
  const auto ids = [&] { return strategy.run([](ReplicaContext&) { return std::this_thread::get_id(); }); };
  const auto first = ids();
  const auto second = ids();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(first[r], second[r]);
  EXPECT_NE(first[0], first[1]);
}

TEST(Run, RethrowsTheErrorOfOneReplicaAndStopsTheOthers) {
  const auto strategy = mirrored(4);
  for (int round = 0; round < 50; ++round) {
    const int failing = round % 4;
    try {
      strategy.run([&](ReplicaContext& replica) {
        if (replica.id() == failing) throw std::out_of_range("replica " + std::to_string(failing) + " broke");
        replica.all_reduce(ReduceOp::kSum, torch::ones({10}));  // would wait for ever
      });
      FAIL() << "nothing was thrown";
    } catch (const std::out_of_range& error) {
      EXPECT_EQ(error.what(), "replica " + std::to_string(failing) + " broke");
    }
    // The strategy works as before.
    const auto sums =
        strategy.run([](ReplicaContext& r) { return r.all_reduce(ReduceOp::kSum, torch::ones({3})); });
    EXPECT_TRUE(sums[3].equal(torch::full({3}, 4.0f)));
  }
}

TEST(Run, NamesTheReplicaThatReturnedWithoutACollective) {
  const auto strategy = mirrored(2);
  try {
    strategy.run([](ReplicaContext& replica) {
      if (replica.id() == 0) replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
    });
    FAIL();
  } catch (const FailedPrecondition& error) {
    EXPECT_NE(std::string(error.what()).find("replica 0 waits in all_reduce but replica 1 has returned"),
              std::string::npos);
  }
}

TEST(Run, RefusesToBeCalledInsideItself) {
  const auto strategy = mirrored(2);
  EXPECT_THROW(strategy.run([&](ReplicaContext&) { strategy.run([](ReplicaContext&) {}); }),
               FailedPrecondition);
}

// Ends the process: with 0 if there are as many threads as there should be, always.
[[noreturn]] void count_threads_of_strategies() {
  const auto expect = [](int threads) {
    if (count_threads() == threads) return;
    std::fprintf(stderr, "%d threads, expected %d\n", count_threads(), threads);
    std::exit(1);
  };
  mirrored(4).run([](ReplicaContext&) {});
  const int before = count_threads();
  for (int i = 0; i < 20; ++i) {
    const auto strategy = mirrored(4);
    expect(before + 4);
    try {
      strategy.run([](ReplicaContext& r) {
        if (r.id() == 1) throw std::runtime_error("x");
        r.all_reduce(ReduceOp::kSum, torch::ones({1}));
      });
      std::exit(2);
    } catch (const std::runtime_error&) {
    }
  }
  expect(before);
  std::exit(0);
}

// In a process of its own: gRPC's threads, of tests before this one, may still be ending.
TEST(RunDeathTest, LeavesNoThreadBehind) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(count_threads_of_strategies(), testing::ExitedWithCode(0), "");
}

TEST(Run, KeepsTwoCoresBusyAtOnce) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core";
  const auto strategy = mirrored(2);
  // Each replica spins until it has seen the other one run: only threads that run at the same time get past.
  std::atomic<int> inside{0};
  strategy.run([&](ReplicaContext&) {
    inside.fetch_add(1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (inside.load() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(inside.load(), 2);
  });
}

}  // namespace
}  // namespace tandem
