// Synchronous steps that do not wait for the slowest worker.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "base/log.h"
#include "ps_service/servers.h"
#include "support/errors.h"

namespace tandem::internal::ps {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

PsHandle push_ones(PsClient& client, std::uint64_t step) {
  static const std::vector<float> ones(kCountingElements, 1.0f);
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < 4; ++i) gradients.push_back({.shard = i, .values = bytes_of(ones)});
  return client.push_async({.step = step}, gradients);
}

TEST(BackupWorkers, AStepIsWholeWithoutTheSlowOneWhichGoesOnWithTheCurrent) {
  const PlacementPlan plan = counting_plan(2);
  Servers servers(2, {.workers = 3, .staleness = 0, .aggregate = 2});
  auto chief = servers.chief(plan);
  auto second = servers.client(plan, 1);
  auto slow = servers.client(plan, 2);
  second->wait_until_ready();
  slow->wait_until_ready();
  Values pulled(plan);
  slow->pull_async(0, pulled.targets()).wait(5s);
  for (std::uint64_t step = 0; step < 5; ++step) {
    chief->pull_async(step, pulled.targets()).wait(5s);
    auto first = push_ones(*chief, step);
    EXPECT_EQ(push_ones(*second, step).wait(5s).status, Status::kApplied);
    EXPECT_EQ(first.wait(5s).next_step, step + 1);
  }
  PsOutcome outcome = push_ones(*slow, 0).wait(5s);
  EXPECT_EQ(outcome.status, Status::kLate);
  EXPECT_EQ(outcome.next_step, 5u);
  EXPECT_EQ(outcome.global_step, 5u);
  slow->pull_async(5, pulled.targets()).wait(5s);
  EXPECT_EQ(pulled.floats(3)[0], 10.0f);

  // Now another one is slow.
  auto held = push_ones(*slow, 5);
  EXPECT_THROW(held.wait(50ms), DeadlineExceeded) << "one is not enough";
  EXPECT_EQ(push_ones(*second, 5).wait(5s).status, Status::kApplied);
  EXPECT_EQ(held.wait(5s).status, Status::kApplied);
  outcome = push_ones(*chief, 5).wait(5s);
  EXPECT_EQ(outcome.status, Status::kLate);
  EXPECT_EQ(outcome.next_step, 6u);
}

TEST(BackupWorkers, TheRestIsEnoughWhenWorkersDie) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 3, .staleness = 0, .aggregate = 2, .worker_grace = 50ms});
  auto chief = servers.chief(plan);
  auto second = servers.client(plan, 1);
  second->wait_until_ready();
  // Two are enough to begin.
  auto first = push_ones(*chief, 0);
  push_ones(*second, 0).wait(5s);
  first.wait(5s);
  auto alone = push_ones(*chief, 1);
  EXPECT_THROW(alone.wait(50ms), DeadlineExceeded);
  second.reset();
  EXPECT_EQ(alone.wait(5s).status, Status::kApplied);
}

TEST(BackupWorkers, EveryStepHasItsPushesWhoeverIsSlow) {
  constexpr int kWorkers = 3;
  constexpr std::uint64_t kSteps = 60;
  const PlacementPlan plan = counting_plan(2);
  Servers servers(2, {.workers = kWorkers, .staleness = 0, .aggregate = 2});
  auto chief = servers.chief(plan);
  std::atomic<int> late{0};
  std::latch here(kWorkers);
  std::vector<std::thread> threads;
  for (int number = 0; number < kWorkers; ++number) {
    threads.emplace_back([&, number] {
      auto own = number == 0 ? nullptr : servers.client(plan, number);
      PsClient& worker = own ? *own : *chief;
      worker.wait_until_ready();
      here.arrive_and_wait();
      Values pulled(plan);
      for (std::uint64_t step = 0; step < kSteps;) {
        worker.pull_async(step, pulled.targets()).wait(20s);
        if (number == static_cast<int>(step / 20)) std::this_thread::sleep_for(3ms);
        const PsOutcome outcome = push_ones(worker, step).wait(20s);
        if (outcome.status == Status::kLate) ++late;
        EXPECT_GT(outcome.next_step, step);
        step = outcome.next_step;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GE(late, 1) << "all three began with step 0";
  Values pulled(plan);
  chief->pull_async(kSteps, pulled.targets()).wait(5s);
  for (std::size_t shard = 0; shard < 4; ++shard) {
    EXPECT_EQ(pulled.floats(shard)[7], 2.0f * kSteps) << shard;
    EXPECT_EQ(servers.stores[static_cast<std::size_t>(plan.shards()[shard].ps)]->updates(shard),
              static_cast<std::int64_t>(kSteps));
  }
  EXPECT_EQ(chief->global_step(), kSteps);
}

TEST(BackupWorkers, AreOfNoUseWhereNobodyWaits) {
  CountingStore store;
  EXPECT_EQ(message_of<InvalidArgument>([&] { PsService(store, {.aggregate = 2}); }),
            "aggregate 2: expected at least 1 update for each step, and a staleness of 0");
}

}  // namespace
}  // namespace tandem::internal::ps
