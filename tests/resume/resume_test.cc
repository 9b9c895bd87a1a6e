// Real trainings that are killed at any moment and started again with the same command.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "kills/dose.h"
#include "support/cluster_of_processes.h"
#include "support/temp_folder.h"

namespace tandem::testing_support {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* kProgram = TANDEM_BIN "/resnet_cifar_main";
constexpr int kPreempted = 42;
constexpr int kNoCheckpoint = 65;
constexpr int kPeerLost = 75;

// A small ResNet that saves after every second step.
std::vector<std::string> flags(std::int64_t steps) {
  return {"--train_steps",
          std::to_string(steps),
          "--batch_size",
          "8",
          "--threads_per_replica",
          "1",
          "--skip_eval",
          "--seed",
          "3",
          "--save_checkpoints_steps",
          "2",
          "--distribution_strategy"};
}

nlohmann::json figures(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

std::vector<std::string> one_process(std::int64_t steps, const TempFolder& folder, bool save = true) {
  std::vector<std::string> command = flags(steps);
  command.insert(command.begin(), kProgram);
  for (const std::string& flag : {std::string("mirrored"), std::string("--num_cpus"), std::string("2"),
                                  std::string("--metrics_json"), folder.file("figures.json")}) {
    command.push_back(flag);
  }
  if (save) {
    command.push_back("--model_dir");
    command.push_back(folder.file("model"));
  }
  return command;
}

std::string digest_of_undisturbed(std::int64_t steps) {
  const TempFolder folder;
  RunningProgram program(one_process(steps, folder, /*save=*/false));
  EXPECT_EQ(program.wait(120), 0) << program.out;
  return figures(folder.file("figures.json")).at("parameter_digest");
}

// The newest checkpoint of a training; empty if there is none yet.
std::string newest(const std::string& model_dir) {
  std::ifstream file(model_dir + "/checkpoints/latest");
  std::string name;
  file >> name;
  return name;
}

// Until a training that runs has got somewhere: a machine may be slow.
void wait_for_another_checkpoint(const std::string& model_dir) {
  const std::string before = newest(model_dir);
  for (int i = 0; i < 6000 && newest(model_dir) == before; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_NE(newest(model_dir), before);
}

TEST(OneProcess, KilledAtAnyMomentEndsWithTheSameBits) {
  const int kills = dose("TANDEM_RESUME_KILLS", 3);
  const std::int64_t steps = 40 + 40 * kills;
  const std::string expected = digest_of_undisturbed(steps);
  const TempFolder folder;
  std::mt19937 random(7);
  int killed = 0;
  int went_on = 0;
  for (int start = 0; start < 3 * kills + 1; ++start) {
    RunningProgram program(one_process(steps, folder));
    if (killed < kills) {
      // From before the model is made to some steps into the training; every other time it has saved first.
      if (killed % 2 == 0) wait_for_another_checkpoint(folder.file("model"));
      std::this_thread::sleep_for(milliseconds(killed % 2 == 0 ? random() % 300 : random() % 1000));
      program.send(SIGKILL);
      const int code = program.wait();
      if (code != 0) {
        ++killed;
        went_on += program.count("going on after step");
        continue;
      }
    }
    ASSERT_EQ(program.wait(120), 0) << program.out;
    went_on += program.count("going on after step");
    break;
  }
  EXPECT_EQ(killed, kills) << "the training was over too soon";
  EXPECT_GT(went_on, 0);
  EXPECT_EQ(figures(folder.file("figures.json")).at("parameter_digest"), expected);
  EXPECT_EQ(figures(folder.file("figures.json")).at("steps"), steps);
  fmt::print("{} kills, {} starts that went on from a checkpoint\n", killed, went_on);
}

TEST(OneProcess, ToldToGoSavesAndEndsWith42) {
  const std::string expected = digest_of_undisturbed(30);
  const TempFolder folder;
  {
    RunningProgram program(one_process(30, folder));
    wait_for_another_checkpoint(folder.file("model"));
    program.send(SIGTERM);
    ASSERT_EQ(program.wait(), kPreempted) << program.out;
    EXPECT_EQ(program.count("told to go (SIGTERM): stopped after step"), 1) << program.out;
  }
  RunningProgram program(one_process(30, folder));
  ASSERT_EQ(program.wait(60), 0) << program.out;
  EXPECT_EQ(program.count("going on after step"), 1) << program.out;
  EXPECT_EQ(figures(folder.file("figures.json")).at("parameter_digest"), expected);
  // Once more: nothing is left to do, and the figures are the same.
  RunningProgram again(one_process(30, folder));
  ASSERT_EQ(again.wait(60), 0) << again.out;
  EXPECT_EQ(figures(folder.file("figures.json")).at("parameter_digest"), expected);
}

TEST(OneProcess, WithoutAUsableCheckpointEndsWith65AndTouchesNothing) {
  const TempFolder folder;
  {
    RunningProgram program(one_process(6, folder));
    ASSERT_EQ(program.wait(60), 0) << program.out;
  }
  int damaged = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "model")) {
    if (entry.path().extension() != ".safetensors") continue;
    fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
    ++damaged;
  }
  ASSERT_EQ(damaged, 6);
  RunningProgram program(one_process(6, folder));
  EXPECT_EQ(program.wait(60), kNoCheckpoint) << program.out;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "model/checkpoints"), fs::directory_iterator()), 4);
}

// Two workers of one replica each; the checkpoints are of both.
class TwoWorkers : public testing::Test {
 protected:
  static std::vector<std::string> with(std::int64_t steps, const std::string& model_dir) {
    std::vector<std::string> all = flags(steps);
    all.push_back("multi_worker_mirrored");
    if (!model_dir.empty()) {
      all.push_back("--model_dir");
      all.push_back(model_dir);
    }
    return all;
  }

  void start(ClusterOfProcesses& cluster) {
    for (int worker = 0; worker < cluster.size(); ++worker) {
      cluster.start(worker, {"--metrics_json", folder_.file(fmt::format("figures{}.json", worker))});
    }
  }

  std::string digest() {
    const auto first = figures(folder_.file("figures0.json")).at("parameter_digest");
    EXPECT_EQ(first, figures(folder_.file("figures1.json")).at("parameter_digest"));
    return first;
  }

  std::string undisturbed(std::int64_t steps) {
    ClusterOfProcesses cluster(2, with(steps, ""), kProgram);
    start(cluster);
    for (int worker = 0; worker < 2; ++worker) EXPECT_EQ(cluster[worker].wait(120), 0) << cluster[worker].out;
    return digest();
  }

  TempFolder folder_;
};

TEST_F(TwoWorkers, KilledAndStartedAgainTogetherEndWithTheSameBits) {
  const int kills = dose("TANDEM_RESUME_WORKER_KILLS", 2);
  const std::int64_t steps = 40 + 50 * kills;
  const std::string expected = undisturbed(steps);
  ClusterOfProcesses cluster(2, with(steps, folder_.file("model")), kProgram);
  std::mt19937 random(11);
  for (int kill = 0; kill < kills; ++kill) {
    start(cluster);
    // Of every third kill both; the other worker ends by itself, or dies before it knows the one that died.
    for (int worker = 0; worker < 2; ++worker) cluster[worker].wait_for("2 tasks x 1 replicas");
    if (kill % 2 == 0) wait_for_another_checkpoint(folder_.file("model"));
    std::this_thread::sleep_for(milliseconds(random() % (kill % 2 == 0 ? 300 : 700)));
    const int victim = static_cast<int>(random() % 2);
    cluster[victim].send(SIGKILL);
    if (kill % 3 == 2) cluster[1 - victim].send(SIGKILL);
    EXPECT_NE(cluster[victim].wait(), 0);
    const int code = cluster[1 - victim].wait();
    EXPECT_TRUE(code == kPeerLost || kill % 3 == 2) << code << "\n" << cluster[1 - victim].out;
  }
  start(cluster);
  for (int worker = 0; worker < 2; ++worker) ASSERT_EQ(cluster[worker].wait(120), 0) << cluster[worker].out;
  EXPECT_EQ(cluster[0].count("going on after step"), 1) << cluster[0].out;
  EXPECT_EQ(digest(), expected);
  fmt::print("{} kills\n", kills);
}

TEST_F(TwoWorkers, WithoutADiskInCommonTheChiefWritesAll) {
  const std::string expected = undisturbed(16);
  for (const std::int64_t steps : {6, 16}) {
    ClusterOfProcesses cluster(2, with(steps, ""), kProgram);
    for (int worker = 0; worker < 2; ++worker) {
      cluster.start(worker, {"--metrics_json", folder_.file(fmt::format("figures{}.json", worker)),
                             "--model_dir", folder_.file(fmt::format("disk{}", worker))});
    }
    for (int worker = 0; worker < 2; ++worker) ASSERT_EQ(cluster[worker].wait(60), 0) << cluster[worker].out;
  }
  EXPECT_EQ(digest(), expected);
  EXPECT_TRUE(fs::exists(folder_ / "disk0/checkpoints/step-000000000016.g000002/shard-1-of-2.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "disk1/checkpoints"));
}

TEST_F(TwoWorkers, OneToldToGoStopsBothAtTheSameStep) {
  const std::string expected = undisturbed(30);
  ClusterOfProcesses cluster(2, with(30, folder_.file("model")), kProgram);
  start(cluster);
  wait_for_another_checkpoint(folder_.file("model"));
  cluster[1].send(SIGTERM);
  for (int worker = 0; worker < 2; ++worker) {
    ASSERT_EQ(cluster[worker].wait(), kPreempted) << cluster[worker].out;
  }
  for (int worker = 0; worker < 2; ++worker)
    EXPECT_EQ(cluster[worker].count(" left "), 0) << cluster[worker].out;
  const std::string step = cluster[0].word_after("stopped after step ");
  EXPECT_EQ(cluster[1].word_after("stopped after step "), step);
  start(cluster);
  for (int worker = 0; worker < 2; ++worker) ASSERT_EQ(cluster[worker].wait(60), 0) << cluster[worker].out;
  EXPECT_EQ(digest(), expected);
  // What two tasks saved goes on in one process: another sum of other parts, so not to the last bit.
  std::vector<std::string> command = with(34, folder_.file("model"));
  command.insert(command.begin(), kProgram);
  *std::ranges::find(command, "multi_worker_mirrored") = "mirrored";
  RunningProgram alone(command);
  EXPECT_EQ(alone.wait(60), 0) << alone.out;
  EXPECT_EQ(alone.count("going on after step 30 "), 1) << alone.out;
}

}  // namespace
}  // namespace tandem::testing_support
