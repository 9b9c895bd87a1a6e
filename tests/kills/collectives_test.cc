// Tasks that are killed and stopped in the middle of a sum over all of them.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "kills/dose.h"
#include "kills/networks.h"
#include "support/cluster_of_processes.h"
#include "support/temp_folder.h"

namespace tandem::testing_support {
namespace {

using std::chrono::milliseconds;

constexpr int kPeerLost = 75;
constexpr int kTasks = 3;
constexpr const char* kProgram = TANDEM_BIN "/summing_task";

// Sends a signal to one of three tasks that do nothing but sum, and returns after how long each of the others
// named it.
std::vector<std::int64_t> delays_after(int signal, int victim, unsigned pause_ms,
                                       const std::string& evidence) {
  ClusterOfProcesses cluster(kTasks, {"--steps", "1000000"}, kProgram);
  cluster.start_all();
  for (int worker = 0; worker < kTasks; ++worker) cluster.started_at(worker);
  std::this_thread::sleep_for(milliseconds(pause_ms));
  const std::int64_t sent_at = milliseconds_since_1970();
  cluster[victim].send(signal);
  std::vector<std::int64_t> delays;
  for (int worker = 0; worker < kTasks; ++worker) {
    if (worker == victim) continue;
    const auto lost = cluster.lost(worker);
    EXPECT_EQ(cluster[worker].wait(), kPeerLost) << cluster[worker].out;
    EXPECT_EQ(lost.task, fmt::format("worker:{}", victim)) << cluster[worker].out;
    EXPECT_EQ(lost.evidence, evidence) << cluster[0].out << cluster[1].out << cluster[2].out;
    delays.push_back(lost.at - sent_at);
  }
  return delays;
}

TEST(KillInASum, IsNamedByAllOthersWithinASecond) {
  std::mt19937 random(3);
  std::vector<std::int64_t> delays;
  for (int kill = 0; kill < dose("TANDEM_KILLS", 10); ++kill) {
    const int victim = kill % 4 == 0 ? 0 : static_cast<int>(random() % kTasks);
    for (const auto delay : delays_after(SIGKILL, victim, random() % 100, "dead")) delays.push_back(delay);
  }
  EXPECT_LT(p99_of("kills in a sum", delays), 1000);
}

TEST(StopInASum, IsNamedByAllOthers) {
  std::mt19937 random(4);
  std::vector<std::int64_t> delays;
  for (int stop = 0; stop < dose("TANDEM_STOPS", 2); ++stop) {
    const int victim = static_cast<int>(random() % kTasks);
    for (const auto delay : delays_after(SIGSTOP, victim, random() % 100, "unreachable"))
      delays.push_back(delay);
  }
  EXPECT_LT(p99_of("stops in a sum", delays), 2000);  // on a busy machine; 1000 on an idle one
}

TEST(PauseInASum, OfAThirdOfASecondOnlyDelaysIt) {
  ClusterOfProcesses cluster(kTasks, {"--steps", "1500"}, kProgram);
  cluster.start_all();
  for (int worker = 0; worker < kTasks; ++worker) cluster.started_at(worker);
  cluster[1].send(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(300));
  cluster[1].send(SIGCONT);
  for (int worker = 0; worker < kTasks; ++worker) {
    EXPECT_EQ(cluster[worker].wait(), 0) << cluster[worker].out;
    EXPECT_EQ(cluster[worker].count("done after 1500 steps"), 1) << cluster[worker].out;
  }
}

// The same with a model: every task says which one is gone, how it knows and at which step, and ends with 75.
TEST(KillInTraining, EndsEveryTaskWithTheStep) {
  ClusterOfProcesses cluster(kTasks,
                             {"--distribution_strategy", "multi_worker_mirrored", "--use_synthetic_data",
                              "--batch_size", "24", "--train_steps", "100000", "--skip_eval", "--seed", "1"},
                             TANDEM_BIN "/resnet_cifar_main");
  cluster.start_all();
  cluster[0].wait_for("global batch 24 = 3 replicas x 8");
  std::this_thread::sleep_for(milliseconds(1500));
  const std::int64_t killed_at = milliseconds_since_1970();
  cluster[1].send(SIGKILL);
  for (const int worker : {0, 2}) {
    EXPECT_EQ(cluster[worker].wait(), kPeerLost) << cluster[worker].out;
    EXPECT_EQ(cluster[worker].count("resnet_cifar_main: worker:1 (127.0.0.1:"), 1) << cluster[worker].out;
    EXPECT_EQ(cluster[worker].count("is dead: its connection broke and its port refuses new ones, at step "),
              2)
        << cluster[worker].out;  // the log, the last line
  }
  const auto ended_after = milliseconds_since_1970() - killed_at;
  EXPECT_LT(ended_after, 5000);  // with the unwinding of three torch processes on two cores
  fmt::print("a task of a training is killed: the others have ended after {} ms\n", ended_after);
}

// Two machines that share a token, on addresses of their own.
TEST(TwoHosts, SumWithAToken) {
  Networks networks(2);
  const TempFolder folder;
  const std::string token = folder.file("token");
  RunningProgram make({TANDEM_BIN "/tandem", "certs", "token", token});
  ASSERT_EQ(make.wait(), 0) << make.out;
  const std::string hosts = fmt::format("{}:20000,{}:20000", networks.address(0), networks.address(1));
  std::vector<std::unique_ptr<RunningProgram>> tasks;
  for (int node = 0; node < 2; ++node) {
    std::vector<std::string> command = networks.enter(node);
    command.insert(command.end(), {kProgram, "--worker_hosts", hosts, "--task_index", std::to_string(node),
                                   "--steps", "20", "--security", "token", "--token_file", token});
    if (node == 1) command.insert(command.end(), {"--data_port", "21000"});
    tasks.push_back(std::make_unique<RunningProgram>(command));
  }
  for (const auto& task : tasks) {
    EXPECT_EQ(task->wait(), 0) << task->out;
    EXPECT_EQ(task->count("done after 20 steps"), 1) << task->out;
  }
  EXPECT_EQ(tasks[1]->count(fmt::format("data at {}:21000", networks.address(1))), 1) << tasks[1]->out;
}

}  // namespace
}  // namespace tandem::testing_support
