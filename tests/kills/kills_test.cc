// Real processes that are started, stopped, killed and cut off.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "kills/dose.h"
#include "kills/networks.h"
#include "support/cluster_of_processes.h"

namespace tandem::testing_support {
namespace {

using std::chrono::milliseconds;

constexpr int kPeerLost = 75;

class Start : public ::testing::TestWithParam<int> {};

TEST_P(Start, IsTogetherWhateverTheOrder) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  ClusterOfProcesses cluster(GetParam(), {"--steps", "3", "--step_ms", "20"});
  std::vector<int> order(static_cast<std::size_t>(GetParam()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (const int worker : order) {
    cluster.start(worker);
    std::this_thread::sleep_for(milliseconds(random() % 150));
  }
  std::vector<std::int64_t> times;
  for (int worker = 0; worker < cluster.size(); ++worker) times.push_back(cluster.started_at(worker));
  const auto [first, last] = std::ranges::minmax(times);
  EXPECT_LT(last - first, 100) << "milliseconds between the first and the last start";
  for (int worker = 0; worker < cluster.size(); ++worker)
    EXPECT_EQ(cluster[worker].wait(), 0) << cluster[worker].out;
}

INSTANTIATE_TEST_SUITE_P(Of, Start, ::testing::Values(2, 3, 8));

TEST(Kill, OfAnyTaskIsNamedByAllOthersWithinASecond) {
  const int kills = dose("TANDEM_KILLS", 10);
  std::mt19937 random(1);
  std::vector<std::int64_t> delays;
  for (int kill = 0; kill < kills; ++kill) {
    ClusterOfProcesses cluster(3, {"--steps", "100000", "--step_ms", "5"});
    const int victim = kill % 4 == 0 ? 0 : static_cast<int>(random() % 3);
    cluster.start_all();
    for (int worker = 0; worker < 3; ++worker) cluster.started_at(worker);
    std::this_thread::sleep_for(milliseconds(random() % 200));
    const std::int64_t killed_at = milliseconds_since_1970();
    cluster[victim].send(SIGKILL);
    for (int worker = 0; worker < 3; ++worker) {
      if (worker == victim) continue;
      const auto lost = cluster.lost(worker);
      EXPECT_EQ(lost.task, fmt::format("worker:{}", victim)) << cluster[worker].out;
      EXPECT_EQ(lost.evidence, "dead") << cluster[worker].out;
      delays.push_back(lost.at - killed_at);
      EXPECT_EQ(cluster[worker].wait(), kPeerLost) << cluster[worker].out;
    }
  }
  EXPECT_LT(p99_of("kills", delays), 1000);
}

TEST(Kill, BeforeTheStartIsSaidAndTheTaskMayComeAgain) {
  for (const int victim : {0, 1}) {
    ClusterOfProcesses cluster(3, {"--steps", "3", "--step_ms", "20"});
    const int witness = 1 - victim;
    cluster.start(0);
    cluster.start(1);
    // The third is what both wait for: they hear each other.
    cluster[witness].wait_for("waiting for 1 of 3: worker:2");
    const std::int64_t killed_at = milliseconds_since_1970();
    cluster[victim].send(SIGKILL);
    cluster[witness].wait_for(fmt::format("worker:{} (", victim), 1);
    cluster[witness].wait_for("is dead");
    EXPECT_LT(milliseconds_since_1970() - killed_at, 1000) << cluster[witness].out;
    EXPECT_EQ(cluster[victim].wait(), 128 + SIGKILL);
    cluster.start(victim);
    cluster.start(2);
    for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(cluster[worker].wait(), 0) << cluster[worker].out;
  }
}

TEST(Kill, OfARestartedTaskIsNamedAsARestart) {
  ClusterOfProcesses cluster(3, {"--steps", "100000", "--step_ms", "5"});
  cluster.start_all();
  for (int worker = 0; worker < 3; ++worker) cluster.started_at(worker);
  cluster[1].send(SIGKILL);
  cluster.start(1);
  for (const int worker : {0, 2}) {
    const auto lost = cluster.lost(worker);
    EXPECT_EQ(lost.task, "worker:1");
    EXPECT_TRUE(lost.evidence == "dead" || lost.evidence == "restarted") << lost.evidence;
    EXPECT_EQ(cluster[worker].wait(), kPeerLost) << cluster[worker].out;
  }
}

TEST(Pause, OfAThirdOfASecondIsOnlyAWarning) {
  ClusterOfProcesses cluster(3, {"--steps", "100", "--step_ms", "20"});
  cluster.start_all();
  for (int worker = 0; worker < 3; ++worker) cluster.started_at(worker);
  std::this_thread::sleep_for(milliseconds(300));
  cluster[1].send(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(300));
  cluster[1].send(SIGCONT);
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(cluster[worker].wait(), 0) << cluster[worker].out;
    EXPECT_EQ(cluster[worker].count("lost"), 0) << cluster[worker].out;
  }
}

TEST(Pause, OfTenSecondsIsNoticedAndTheStoppedTaskLearnsOfIt) {
  for (const int victim : {0, 2}) {
    ClusterOfProcesses cluster(3, {"--steps", "100000", "--step_ms", "5"});
    cluster.start_all();
    for (int worker = 0; worker < 3; ++worker) cluster.started_at(worker);
    std::this_thread::sleep_for(milliseconds(300));
    const std::int64_t stopped_at = milliseconds_since_1970();
    cluster[victim].send(SIGSTOP);
    for (int worker = 0; worker < 3; ++worker) {
      if (worker == victim) continue;
      const auto lost = cluster.lost(worker);
      EXPECT_EQ(lost.task, fmt::format("worker:{}", victim));
      EXPECT_EQ(lost.evidence, "unreachable");
      EXPECT_LT(lost.at - stopped_at, 2000);
      EXPECT_EQ(cluster[worker].wait(), kPeerLost) << cluster[worker].out;
    }
    const auto rest = milliseconds(10'000) - milliseconds(milliseconds_since_1970() - stopped_at);
    std::this_thread::sleep_for(rest);
    cluster[victim].send(SIGCONT);
    EXPECT_EQ(cluster[victim].wait(), kPeerLost) << cluster[victim].out;
    EXPECT_EQ(cluster[victim].count("this task was left out"), 2)
        << cluster[victim].out;  // the log, the last line
  }
}

TEST(Partition, IsNamedOnBothSides) {
  Networks networks(3);
  std::string hosts;
  for (int node = 0; node < 3; ++node)
    hosts += fmt::format("{}{}:20000", node == 0 ? "" : ",", networks.address(node));
  std::list<RunningProgram> tasks;
  std::vector<RunningProgram*> task;
  for (int node = 0; node < 3; ++node) {
    std::vector<std::string> command = networks.enter(node);
    command.insert(command.end(),
                   {TANDEM_BIN "/hello_cluster", "--worker_hosts", hosts, "--task_index",
                    std::to_string(node), "--steps", "100000", "--step_ms", "5", "--insecure_network"});
    task.push_back(&tasks.emplace_back(command));
  }
  for (auto* program : task) program->word_after(" started ");
  networks.cut_off(2);
  const std::int64_t cut_at = milliseconds_since_1970();
  for (const int node : {0, 1}) {
    EXPECT_EQ(task[static_cast<std::size_t>(node)]->word_after(" lost "), "worker:2");
    EXPECT_EQ(task[static_cast<std::size_t>(node)]->wait(), kPeerLost);
  }
  const std::string named = task[2]->word_after(" lost ");
  EXPECT_TRUE(named == "worker:0" || named == "worker:1") << task[2]->out;
  EXPECT_EQ(task[2]->wait(), kPeerLost);
  for (auto* program : task) EXPECT_EQ(program->count("unreachable"), 3) << program->out;
  EXPECT_LT(milliseconds_since_1970() - cut_at, 3000);
}

TEST(Launch, RunsARolesClusterToItsEnd) {
  RunningProgram launch({TANDEM_BIN "/tandem", "launch", "--workers", "2", "--ps", "1", "--chief",
                         "--evaluator", "--", TANDEM_BIN "/hello_cluster", "--steps", "5", "--step_ms",
                         "20"});
  EXPECT_EQ(launch.wait(), 0) << launch.out;
  for (const char* task : {"chief:0", "worker:0", "worker:1"}) {
    EXPECT_EQ(launch.count(fmt::format("{} done after 5 steps", task)), 1) << launch.out;
  }
  EXPECT_EQ(launch.count("ps:0 done: the others have finished"), 1) << launch.out;
  EXPECT_EQ(launch.count("evaluator:0 done: the others have finished"), 1) << launch.out;
}

}  // namespace
}  // namespace tandem::testing_support
