// Parameter servers and workers as processes: what parameter_server_task finds in each of them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "base/ports.h"
#include "support/running_program.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::RunningProgram;
using testing_support::TempFolder;
using Flags = std::vector<std::string>;

// What a task printed as "name value"; the last one of each name.
std::map<std::string, std::string> figures_of(const std::string& out) {
  std::map<std::string, std::string> figures;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const auto space = line.find(' ');
    if (space != std::string::npos) figures[line.substr(0, space)] = line.substr(space + 1);
  }
  return figures;
}

// ps and worker tasks on ports of this machine.
class PsCluster {
 public:
  // With `chief` the first of the workers is a task of that job.
  PsCluster(int servers, int workers, const std::string& scenario, Flags flags = {}, bool chief = false)
      : chief_(chief),
        ports_(internal::ReservedPorts::choose("127.0.0.1", servers + workers)),
        scenario_(scenario),
        flags_(std::move(flags)),
        servers_(static_cast<std::size_t>(servers)),
        workers_(static_cast<std::size_t>(workers)) {
    const auto addresses = [&](int first, int count) {
      std::string list;
      for (int i = first; i < first + count; ++i) {
        list += fmt::format("{}\"127.0.0.1:{}\"", list.empty() ? "" : ", ",
                            ports_.ports()[static_cast<std::size_t>(i)]);
      }
      return list;
    };
    std::ofstream(folder_.file("cluster.json"))
        << fmt::format(R"({{"cluster": {{"ps": [{}], {} "worker": [{}]}}}})", addresses(0, servers),
                       chief ? fmt::format("\"chief\": [{}],", addresses(servers, 1)) : "",
                       addresses(servers + chief, workers - chief));
  }

  void start_ps(int index) { start("ps", index, servers_[static_cast<std::size_t>(index)], {}); }
  void start_worker(int index, const Flags& more = {}) {
    const bool is_chief = chief_ && index == 0;
    start(is_chief ? "chief" : "worker", is_chief ? 0 : index - chief_,
          workers_[static_cast<std::size_t>(index)], more);
  }
  void start_all() {
    for (std::size_t i = 0; i < servers_.size(); ++i) start_ps(static_cast<int>(i));
    for (std::size_t i = 0; i < workers_.size(); ++i) start_worker(static_cast<int>(i));
  }
  RunningProgram& ps(int index) { return *servers_[static_cast<std::size_t>(index)]; }
  RunningProgram& worker(int index) { return *workers_[static_cast<std::size_t>(index)]; }
  std::string folder() const { return folder_.path(); }

  // Until all have ended, as they should.
  void expect_done(int seconds = 100) {
    for (auto* tasks : {&workers_, &servers_}) {
      for (auto& task : *tasks) {
        if (!task || task->id() < 0) continue;
        EXPECT_EQ(task->wait(seconds), 0) << out();
      }
    }
  }
  std::string out() const {
    std::string all;
    for (const auto* tasks : {&servers_, &workers_}) {
      for (std::size_t i = 0; i < tasks->size(); ++i) {
        all += fmt::format("--- {} {}\n{}", tasks == &servers_ ? "ps" : "worker", i,
                           (*tasks)[i] ? (*tasks)[i]->out : "");
      }
    }
    return all;
  }
  double number(int index, const std::string& name) {
    const auto figures = figures_of(worker(index).out);
    const auto found = figures.find(name);
    if (found == figures.end()) {
      ADD_FAILURE() << "no " << name << " in\n" << out();
      return 0;
    }
    return std::stod(found->second);
  }
  std::string text(int index, const std::string& name) { return figures_of(worker(index).out)[name]; }

 private:
  using Tasks = std::vector<std::unique_ptr<RunningProgram>>;

  void start(const std::string& type, int index, std::unique_ptr<RunningProgram>& task, const Flags& more) {
    Flags command{TANDEM_BIN "/parameter_server_task",
                  scenario_,
                  "--cluster_file",
                  folder_.file("cluster.json"),
                  "--task_type",
                  type,
                  "--task_index",
                  std::to_string(index)};
    command.insert(command.end(), flags_.begin(), flags_.end());
    command.insert(command.end(), more.begin(), more.end());
    task = std::make_unique<RunningProgram>(command);
  }

  const bool chief_;
  TempFolder folder_;
  internal::ReservedPorts ports_;
  std::string scenario_;
  Flags flags_;
  Tasks servers_;
  Tasks workers_;
};

TEST(ParameterServer, OneWorkerGetsTheBitsOfOneDevice) {
  PsCluster tasks(1, 1, "one_worker");
  tasks.start_all();
  tasks.expect_done();
  EXPECT_EQ(tasks.text(0, "lenet").size(), 64u) << tasks.out();
  EXPECT_EQ(tasks.text(0, "lenet"), tasks.text(0, "lenet_alone"));
}

TEST(ParameterServer, HowVariablesAreCutAndPlacedChangesNoBit) {
  PsCluster tasks(3, 1, "one_worker_mixed", {"--min_shard_bytes", "512"});
  tasks.start_all();
  tasks.expect_done();
  EXPECT_NE(tasks.ps(2).out.find("3 shards"), std::string::npos) << tasks.out();
  EXPECT_EQ(tasks.text(0, "mixed").size(), 64u) << tasks.out();
  EXPECT_EQ(tasks.text(0, "mixed"), tasks.text(0, "mixed_alone"));
}

TEST(ParameterServer, WorkersInStepEqualMirrored) {
  PsCluster tasks(1, 2, "in_step", {"--staleness", "0"});
  tasks.start_all();
  tasks.expect_done();
  EXPECT_EQ(tasks.number(0, "replicas"), 2);
  EXPECT_EQ(tasks.number(0, "steps"), 8) << tasks.out();
  EXPECT_LT(tasks.number(0, "to_mirrored"), 1e-5) << tasks.out();
}

TEST(ParameterServer, ComputesInBfloat16AndAgreesWithMirrored) {
  for (const int workers : {1, 2}) {
    PsCluster tasks(1, workers, "half_precision", {"--staleness", "0"});
    tasks.start_all();
    tasks.expect_done();
    EXPECT_EQ(tasks.number(0, "all_float32"), 1);
    EXPECT_LT(tasks.number(0, "to_mirrored"), 1e-5) << tasks.out();
    EXPECT_LT(tasks.number(0, "to_float32"), 1e-2);
    EXPECT_GT(tasks.number(0, "to_float32"), 1e-6);
    if (workers == 1) {
      EXPECT_EQ(tasks.text(0, "digest"), tasks.text(0, "mirrored_digest"));
    }
    EXPECT_EQ(tasks.text(0, "refused"),
              "loss scaling (float16) needs one decision about each step, which asynchronous workers do not "
              "take: use bfloat16 with parameter servers");
  }
}

TEST(ParameterServer, ReplicasOfAWorkerAreInSync) {
  PsCluster tasks(1, 1, "in_step", {"--replicas", "2"});
  tasks.start_all();
  tasks.expect_done();
  EXPECT_EQ(tasks.number(0, "replicas"), 2);
  EXPECT_LT(tasks.number(0, "to_mirrored"), 1e-5) << tasks.out();
}

TEST(ParameterServer, WorkersThatDoNotWaitLearnAsMuch) {
  PsCluster tasks(2, 3, "learns", {"--steps", "3000"});
  tasks.start_all();
  tasks.expect_done();
  EXPECT_GT(tasks.number(0, "accuracy_alone"), 0.6) << tasks.out();
  EXPECT_NEAR(tasks.number(0, "accuracy"), tasks.number(0, "accuracy_alone"), 0.02) << tasks.out();
  EXPECT_GE(tasks.number(0, "steps"), 3000);
  EXPECT_LE(tasks.number(0, "steps"), 3002);
}

TEST(ParameterServer, ACustomLoopPushesEveryStepOnce) {
  PsCluster tasks(2, 2, "counts", {"--steps", "40"});
  tasks.start_all();
  tasks.expect_done();
  const double pushed = tasks.number(0, "pushed") + tasks.number(1, "pushed");
  EXPECT_EQ(pushed, 80);
  EXPECT_LE(tasks.number(0, "most"), pushed) << tasks.out();
  EXPECT_LE(tasks.number(1, "most"), pushed) << tasks.out();
  EXPECT_EQ(std::max(tasks.number(0, "least"), tasks.number(1, "least")), pushed) << tasks.out();
}

TEST(ParameterServer, GradientsCanTravelIn16Bits) {
  PsCluster tasks(1, 1, "counts", {"--steps", "20", "--bfloat16"});
  tasks.start_all();
  tasks.expect_done();
  EXPECT_EQ(tasks.number(0, "least"), 20);
  EXPECT_EQ(tasks.number(0, "most"), 20);
}

TEST(ParameterServer, WhatIsSavedGoesOnUnderOtherStrategiesAndBack) {
  TempFolder folder;
  for (const int steps : {5, 9}) {  // the second cluster goes on where the first ended
    PsCluster tasks(2, 2, "saves", {"--steps", std::to_string(steps), "--folder", folder.path()});
    tasks.start_all();
    tasks.expect_done();
    const std::string saved = tasks.text(0, "saved");
    EXPECT_EQ(saved.size(), 64u) << tasks.out();
    EXPECT_GE(tasks.number(0, "steps"), steps);
    EXPECT_LE(tasks.number(0, "steps"), steps + 1);
    for (const std::string other : {"mirrored", "one_device"}) {
      EXPECT_EQ(tasks.text(0, other + "_loaded"), saved) << tasks.out();
      EXPECT_EQ(tasks.number(0, other + "_step"), tasks.number(0, "steps"));
      EXPECT_EQ(tasks.text(0, other + "_back"), saved) << tasks.out();
    }
    std::filesystem::remove_all(folder.path() + "/ps");  // only the checkpoint is left
    if (steps == 9) {
      EXPECT_NE(tasks.worker(0).out.find("going on after step"), std::string::npos) << tasks.out();
    }
  }
}

// Rows of a table that no worker has.
TEST(ParameterServerTables, ByRowIsTheSameAsATableHere) {
  std::set<std::string> first_values;
  for (const int servers : {1, 3}) {
    PsCluster tasks(servers, 1, "looks_up", {"--steps", "30", "--replicas", "2", "--min_shard_bytes", "500"});
    tasks.start_all();
    tasks.expect_done();
    EXPECT_EQ(tasks.number(0, "parameters"), 0) << tasks.out();
    EXPECT_EQ(tasks.number(0, "parameters_here"), 2) << "the table is no tensor of the worker's";
    EXPECT_NEAR(tasks.number(0, "stddev"), 0.05, 0.01);
    EXPECT_GT(tasks.number(0, "moved"), 0.1) << tasks.out();
    EXPECT_LT(tasks.number(0, "rows"), 1e-6) << tasks.out();
    EXPECT_LT(tasks.number(0, "dense"), 1e-6) << tasks.out();
    EXPECT_NE(tasks.text(0, "refused").find("id 60 has no row: table.weight has 60 rows (0 to 59)"),
              std::string::npos)
        << tasks.out();
    first_values.insert(tasks.text(0, "first_values"));
  }
  EXPECT_EQ(first_values.size(), 1u) << "how a table is cut changes its first values";
}

TEST(ParameterServerTables, WorkersInStepAddTheirRows) {
  TempFolder folder;
  PsCluster tasks(2, 2, "learns_bags",
                  {"--steps", "150", "--staleness", "0", "--min_shard_bytes", "500", "--out", folder.path()});
  tasks.start_all();
  tasks.expect_done();
  EXPECT_LT(tasks.number(0, "loss"), 0.1 * tasks.number(0, "loss_before")) << tasks.out();
}

TEST(ParameterServerTables, AWorkersMemoryDoesNotGrowWithTheTable) {
  constexpr double kTable = 400'000.0 * 128 * 4;  // 205 MB
  std::vector<double> peaks;
  for (const char* rows : {"600", "400000"}) {
    TempFolder folder;
    PsCluster tasks(2, 2, "learns_bags",
                    {"--steps", "60", "--rows", rows, "--columns", "128", "--min_shard_bytes", "500", "--out",
                     folder.path()});
    tasks.start_all();
    tasks.expect_done();
    peaks.push_back(std::max(tasks.number(0, "peak"), tasks.number(1, "peak")));
    EXPECT_LT(tasks.number(0, "saved_bytes"), 1e5) << tasks.out();
  }
  EXPECT_GT(peaks[0], 1e7);
  EXPECT_LT(peaks[1], peaks[0] + kTable / 10);
}

// Kills a worker, or a ps, again and again while three workers count.
class ParameterServerKills : public testing::TestWithParam<std::string> {};

TEST_P(ParameterServerKills, NoUpdateCountsTwiceAndTheTrainingEnds) {
  const char* dose = std::getenv("TANDEM_PS_STRATEGY_KILLS");
  const int kills = dose ? std::atoi(dose) : 2;
  TempFolder folder;
  PsCluster tasks(
      2, 3, "counts",
      {"--steps", std::to_string(120 + 60 * kills), "--pause_ms", "10", "--folder", folder.path()});
  tasks.start_all();
  std::mt19937 random(7);
  const bool of_ps = GetParam() == "Ps";
  double begun_by_the_dead = 0;
  for (int kill = 0; kill < kills; ++kill) {
    tasks.worker(0).wait_for("pushed", 20 + 40 * kill + static_cast<int>(random() % 20), 60);
    if (of_ps) {
      const int victim = static_cast<int>(random() % 2);
      tasks.ps(victim).send(SIGKILL);
      tasks.ps(victim).wait();
      tasks.start_ps(victim);
    } else {
      tasks.worker(2).send(SIGKILL);
      tasks.worker(2).wait();
      begun_by_the_dead += tasks.worker(2).count("pushed") + 1;  // one may have been under way
      tasks.start_worker(2);
    }
  }
  tasks.expect_done();
  double begun = begun_by_the_dead;
  for (int worker = 0; worker < 3; ++worker) begun += tasks.number(worker, "pushed");
  for (int worker = 0; worker < 3; ++worker) EXPECT_LE(tasks.number(worker, "most"), begun) << tasks.out();
  if (of_ps) return;
  // Every push that was answered is there: the last to look has seen all.
  double least = 0;
  for (int worker = 0; worker < 3; ++worker) least = std::max(least, tasks.number(worker, "least"));
  EXPECT_GE(least, begun - 2.0 * kills) << tasks.out();
}

INSTANTIATE_TEST_SUITE_P(Of, ParameterServerKills, testing::Values("Worker", "Ps"),
                         [](const auto& info) { return info.param; });

// Without snapshots a ps that dies has forgotten everything: the chief gives all of them its checkpoint.
TEST(ParameterServer, ASessionGoesOnFromItsCheckpointWhenAPsHasForgottenEverything) {
  for (const int workers : {1, 2}) {
    TempFolder folder;
    PsCluster tasks(2, workers, "monitors", {"--steps", "300", "--pause_ms", "5", "--out", folder.path()});
    tasks.start_all();
    tasks.worker(0).wait_for("pushed", 30);
    const int victim = workers == 1 ? 1 : 0;  // 0 is the one that counts the steps
    tasks.ps(victim).send(SIGKILL);
    tasks.ps(victim).wait();
    tasks.start_ps(victim);
    tasks.expect_done();
    EXPECT_NE(tasks.worker(0).out.find("making the session anew from the last checkpoint"), std::string::npos)
        << tasks.out();
    EXPECT_NE(tasks.worker(0).out.find("going on after step "), std::string::npos) << tasks.out();
    EXPECT_GE(tasks.number(0, "steps"), 300);
    EXPECT_LE(tasks.number(0, "steps"), 299 + workers);
    if (workers > 1) continue;  // what the other worker pushes meanwhile counts on some shards
    EXPECT_EQ(tasks.number(0, "least"), 300) << "what was lost is trained again, on every ps\n"
                                             << tasks.out();
    EXPECT_EQ(tasks.number(0, "most"), 300) << "what was not lost is taken back\n" << tasks.out();
  }
}

TEST(ParameterServer, ACoordinatorSeesNothingOfAWorkersDeathAndEveryClosureCountsOnce) {
  const char* dose = std::getenv("TANDEM_PS_STRATEGY_KILLS");
  const int kills = dose ? std::atoi(dose) : 2;
  const int closures = 100 + 100 * kills;
  PsCluster tasks(2, 4, "coordinates", {"--steps", std::to_string(closures), "--pause_ms", "5"},
                  /*chief=*/true);
  tasks.start_all();
  tasks.worker(0).wait_for("scheduled");
  std::mt19937 random(5);
  for (int kill = 0; kill < kills; ++kill) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 400));  // any moment will do
    const int victim = 1 + static_cast<int>(random() % 3);
    tasks.worker(victim).send(SIGKILL);
    tasks.worker(victim).wait();
    tasks.start_worker(victim);
  }
  EXPECT_EQ(tasks.worker(0).wait(100), 0) << tasks.out();
  EXPECT_EQ(tasks.number(0, "right"), closures) << tasks.out();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(tasks.number(0, fmt::format("least_w{}", i)), closures) << tasks.out();
    EXPECT_EQ(tasks.number(0, fmt::format("most_w{}", i)), closures) << tasks.out();
  }
  EXPECT_NE(tasks.text(0, "error").find("worker:"), std::string::npos) << tasks.text(0, "error");
  EXPECT_NE(tasks.text(0, "error").find("no such thing on worker"), std::string::npos)
      << tasks.text(0, "error");
  // A worker that came back too late waits for parameter servers that are gone.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(tasks.ps(i).wait(), 0) << tasks.out();
}

TEST(ParameterServer, AWorkerOfAnotherModelIsToldSoAndDisturbsNobody) {
  PsCluster tasks(1, 2, "counts", {"--steps", "60", "--pause_ms", "50"});
  tasks.start_ps(0);
  tasks.start_worker(0);
  tasks.worker(0).wait_for("pushed");
  tasks.start_worker(1, {"--width", "9"});
  EXPECT_EQ(tasks.worker(1).wait(), 2) << tasks.out();
  EXPECT_NE(tasks.worker(1).out.find("has another model than ps 0"), std::string::npos) << tasks.out();
  EXPECT_EQ(tasks.worker(0).wait(), 0) << tasks.out();
  EXPECT_EQ(tasks.ps(0).wait(), 0) << tasks.out();
}

TEST(ParameterServer, AMissingPsIsNamed) {
  PsCluster tasks(2, 1, "counts", {"--steps", "1", "--join_timeout", "2"});
  tasks.start_ps(0);
  tasks.start_worker(0);
  EXPECT_EQ(tasks.worker(0).wait(), 75) << tasks.out();
  EXPECT_NE(tasks.worker(0).out.find("without ps:1"), std::string::npos) << tasks.out();
}

}  // namespace
}  // namespace tandem
