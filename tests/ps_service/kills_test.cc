// Real processes that are killed at random moments: every push counts once, or is reported as lost.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <thread>

#include "base/ports.h"
#include "kills/dose.h"
#include "ps/ps_client.h"
#include "ps_service/counting_model.h"
#include "ps_service/counting_store.h"
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

  explicit CountingCluster(int steps) : steps_(steps), ports_(ReservedPorts::choose("127.0.0.1", kPs)) {
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
    PsClient client(plan, {.worker = kWorkers,
                           .addresses = {fmt::format("127.0.0.1:{}", ports_.ports()[0]),
                                         fmt::format("127.0.0.1:{}", ports_.ports()[1])},
                           .cluster_id = kClusterId,
                           .key = kKey,
                           .connect_timeout = 20s});
    client.wait_until_ready();
    client.pull_async(0, targets).wait(20s);
    client.finish(20s);
    for (int ps = 0; ps < kPs; ++ps) EXPECT_EQ(servers_[ps]->wait(20), 0) << servers_[ps]->out;
    return sums;
  }

 private:
  const int steps_;
  const TempFolder folder_;
  const ReservedPorts ports_;
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

}  // namespace
}  // namespace tandem::internal::ps
