// Real processes that are killed at random moments: every push counts once, or is reported as lost.
#include <gtest/gtest.h>

#include <fstream>
#include <latch>
#include <map>
#include <random>
#include <thread>

#include "base/ports.h"
#include "kills/dose.h"
#include "ps/ps_client.h"
#include "ps_service/counting_model.h"
#include "ps_service/counting_store.h"
#include "support/peak_memory.h"
#include "support/running_program.h"
#include "support/temp_folder.h"

namespace tandem::internal::ps {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr const char* kTask = TANDEM_BIN "/counting_ps_task";

// Two ps tasks and three workers, and this process as a fourth that looks at the sums.
class CountingCluster {
 public:
  static constexpr int kPs = 2;
  static constexpr int kWorkers = 3;

  explicit CountingCluster(int steps)
      : steps_(steps),
        ports_(ReservedPorts::choose("127.0.0.1", kPs)),
        observer_(counting_plan(kPs),
                  {.worker = kWorkers,
                   .locate = at_addresses({fmt::format("127.0.0.1:{}", ports_.ports()[0]),
                                           fmt::format("127.0.0.1:{}", ports_.ports()[1])},
                                          kKey),
                   .cluster_id = kClusterId,
                   .connect_timeout = 60s}) {
    for (int ps = 0; ps < kPs; ++ps) start_ps(ps);
    for (int worker = 0; worker < kWorkers; ++worker) start_worker(worker);
  }

  void start_ps(int ps) {
    servers_[ps] = std::make_unique<RunningProgram>(std::vector<std::string>{
        kTask, "ps", std::to_string(ps), std::to_string(ports_.ports()[static_cast<std::size_t>(ps)]),
        std::to_string(kWorkers + 1), folder_.file(fmt::format("ps{}", ps))});
  }
  void start_worker(int worker) {
    workers_[worker] = std::make_unique<RunningProgram>(
        std::vector<std::string>{kTask, "worker", std::to_string(worker), addresses(), std::to_string(steps_),
                                 folder_.file(fmt::format("tally{}", worker))});
  }
  std::string addresses() const {
    return fmt::format("127.0.0.1:{},127.0.0.1:{}", ports_.ports()[0], ports_.ports()[1]);
  }
  RunningProgram& server(int ps) { return *servers_[ps]; }
  RunningProgram& worker(int worker) { return *workers_[worker]; }

  struct Tally {
    std::uint64_t begun = 0;
    std::uint64_t answered = 0;
  };
  Tally tally(int worker) const {
    std::ifstream file(folder_.file(fmt::format("tally{}", worker)), std::ios::binary);
    Tally tally;
    file.read(reinterpret_cast<char*>(&tally), sizeof tally);
    return tally;
  }

  // When all workers have ended, by shard: what each worker's element has come to. The ps tasks end then.
  std::vector<std::vector<float>> sums() {
    for (int worker = 0; worker < kWorkers; ++worker) {
      EXPECT_EQ(workers_[worker]->wait(60), 0) << workers_[worker]->out;
    }
    const PlacementPlan plan = counting_plan(kPs);
    std::vector<std::vector<float>> sums(plan.shards().size(), std::vector<float>(kCountingElements));
    std::vector<PullTarget> targets;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      targets.push_back({.shard = i, .values = std::as_writable_bytes(std::span(sums[i]))});
    }
    observer_.wait_until_ready();
    observer_.pull_async(0, targets).wait(20s);
    observer_.finish();
    for (int ps = 0; ps < kPs; ++ps) EXPECT_EQ(servers_[ps]->wait(20), 0) << servers_[ps]->out;
    return sums;
  }

 private:
  const int steps_;
  const TempFolder folder_;
  const ReservedPorts ports_;
  PsClient observer_;  // here all the time, or the ps tasks would end with the last worker
  std::map<int, std::unique_ptr<RunningProgram>> servers_;
  std::map<int, std::unique_ptr<RunningProgram>> workers_;
};

TEST(PsKills, AWorkersDeathDisturbsNobodyAndItsPushesCountOnce) {
  const int kills = dose("TANDEM_PS_KILLS", 2);
  CountingCluster cluster(1000 + 250 * kills);
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < kills; ++i) {
    cluster.worker(1).wait_for("begins");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
    cluster.worker(1).send(SIGKILL);
    ASSERT_EQ(cluster.worker(1).wait(), 128 + SIGKILL);
    cluster.start_worker(1);
  }
  const auto sums = cluster.sums();
  for (int worker = 0; worker < CountingCluster::kWorkers; ++worker) {
    const auto tally = cluster.tally(worker);
    for (const auto& shard : sums) {
      const auto count = static_cast<std::uint64_t>(shard[static_cast<std::size_t>(worker)]);
      EXPECT_GE(count, tally.answered) << worker;
      EXPECT_LE(count, tally.begun) << worker;
    }
    EXPECT_LE(tally.begun - tally.answered, worker == 1 ? static_cast<std::uint64_t>(kills) : 0u);
  }
}

TEST(PsKills, AfterAPsDiesTheSumsLackExactlyWhatIsReportedAsLost) {
  const int kills = dose("TANDEM_PS_KILLS", 2);
  const int steps = 2500 + 600 * kills;
  CountingCluster cluster(steps);
  std::mt19937 random(std::random_device{}());
  std::uint64_t seen = 0;
  for (int i = 0; i < kills; ++i) {
    const int ps = i % CountingCluster::kPs;
    cluster.server(ps).wait_for("listens");
    // Not before the workers got somewhere since the last one.
    for (int tries = 0; tries < 2000 && cluster.tally(0).answered < seen + 50; ++tries) {
      std::this_thread::sleep_for(5ms);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));
    if (cluster.worker(0).ended()) FAIL() << "the workers were done before ps " << ps << " was killed";
    cluster.server(ps).send(SIGKILL);
    ASSERT_EQ(cluster.server(ps).wait(), 128 + SIGKILL);
    seen = cluster.tally(0).answered;
    cluster.start_ps(ps);
  }
  const auto sums = cluster.sums();
  std::uint64_t all_lost = 0;
  for (int worker = 0; worker < CountingCluster::kWorkers; ++worker) {
    for (std::size_t shard = 0; shard < sums.size(); ++shard) {
      const auto lost = std::stoull(cluster.worker(worker).word_after(fmt::format("lost {} ", shard)));
      EXPECT_EQ(sums[shard][static_cast<std::size_t>(worker)] + static_cast<float>(lost),
                static_cast<float>(steps))
          << "worker " << worker << ", shard " << shard << ":\n"
          << cluster.worker(worker).out;
      all_lost += lost;
    }
  }
  fmt::print("{} kills, {} updates of a shard reported as lost\n", kills, all_lost);
}

class PsMemory : public testing::TestWithParam<int> {};

TEST_P(PsMemory, HoldsNoMoreThanThriceTheVariablesUnderLoadFromEightWorkers) {
  constexpr int kWorkers = 8;
  constexpr std::uint64_t kBytes = std::uint64_t{24} << 20;
  const int parts = GetParam();
  std::vector<PlanVariable> variables;
  for (int i = 0; i < parts; ++i) {
    variables.push_back({fmt::format("v{}", i), "F32", {static_cast<std::int64_t>(kBytes / 4) / parts}});
  }
  const PlacementPlan plan(variables, {.num_ps = 1});
  const TempFolder folder;
  const ReservedPorts ports = ReservedPorts::choose("127.0.0.1", 1);
  RunningProgram server(
      {kTask, "ps", "0", std::to_string(ports.ports()[0]), std::to_string(kWorkers), folder.file("ps")});
  const std::vector<float> ones(kBytes / 4 / static_cast<std::size_t>(parts), 1.0f);
  std::latch done(kWorkers);
  std::uint64_t peak = 0;  // when the last one is done
  std::vector<std::thread> threads;
  for (int number = 0; number < kWorkers; ++number) {
    threads.emplace_back([&, number] {
      PsClient client(plan, {.worker = number,
                             .locate = at_addresses({fmt::format("127.0.0.1:{}", ports.ports()[0])}, kKey),
                             .cluster_id = kClusterId,
                             .connect_timeout = 20s});
      if (number == 0) {
        client.initialise("count",
                          std::vector(static_cast<std::size_t>(parts), std::as_bytes(std::span(ones))));
      }
      client.wait_until_ready();
      std::vector<std::vector<float>> pulled(static_cast<std::size_t>(parts),
                                             std::vector<float>(ones.size()));
      std::vector<Gradient> gradients;
      std::vector<PullTarget> targets;
      for (std::size_t i = 0; i < pulled.size(); ++i) {
        gradients.push_back({.shard = i, .values = std::as_bytes(std::span(ones))});
        targets.push_back({.shard = i, .values = std::as_writable_bytes(std::span(pulled[i]))});
      }
      for (std::uint64_t step = 0; step < 3; ++step) {
        // Two at a time: a worker may have several pushes under way.
        auto first = client.push_async({.step = 2 * step}, gradients);
        auto second = client.push_async({.step = 2 * step + 1}, gradients);
        client.pull_async(2 * step + 2, targets).wait(60s);
        first.wait(60s);
        second.wait(60s);
      }
      // Its own pushes are in what it pulled.
      EXPECT_GE(pulled[0][0], 7.0f);
      done.arrive_and_wait();
      if (number == 0) peak = peak_memory(server.id());
      client.finish();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(server.wait(30), 0) << server.out;
  fmt::print("{} variables: {} MiB at most, of which {} MiB are variables\n", parts, peak >> 20,
             kBytes >> 20);
  EXPECT_GT(peak, kBytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(peak, 3 * kBytes + (std::uint64_t{64} << 20));
#endif
}

INSTANTIATE_TEST_SUITE_P(Variables, PsMemory, testing::Values(1, 12));

}  // namespace
}  // namespace tandem::internal::ps
