// Several processes train one model: what multi_worker_task finds in each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/example.h"
#include "base/tfrecord.h"
#include "support/cluster_of_processes.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::ClusterOfProcesses;
using testing_support::TempFolder;

// What one task printed as "name value".
using Figures = std::map<std::string, std::string>;

struct ClusterRun {
  std::vector<Figures> figures;  // by task
  std::vector<int> exit_codes;
  std::vector<std::string> last_lines;
  std::string out;  // of all tasks, for messages

  double number(const std::string& name, std::size_t task = 0) const {
    return std::stod(figures[task].at(name));
  }
};

Figures figures_of(const std::string& out) {
  Figures figures;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const auto space = line.find(' ');
    if (space != std::string::npos) figures[line.substr(0, space)] = line.substr(space + 1);
  }
  return figures;
}

std::string last_line(const std::string& out) {
  const auto end = out.find_last_not_of('\n');
  if (end == std::string::npos) return {};
  const auto start = out.rfind('\n', end);
  return out.substr(start == std::string::npos ? 0 : start + 1,
                    end - (start == std::string::npos ? -1 : start));
}

ClusterOfProcesses cluster(int workers, const std::string& scenario, std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), scenario);
  return ClusterOfProcesses(workers, flags, TANDEM_BIN "/multi_worker_task");
}

ClusterRun collect(ClusterOfProcesses& tasks) {
  ClusterRun run;
  for (int i = 0; i < tasks.size(); ++i) {
    run.exit_codes.push_back(tasks[i].wait(100));
    run.figures.push_back(figures_of(tasks[i].out));
    run.last_lines.push_back(last_line(tasks[i].out));
    run.out += "--- task " + std::to_string(i) + "\n" + tasks[i].out;
  }
  return run;
}

ClusterRun run(int workers, const std::string& scenario, const std::vector<std::string>& flags = {}) {
  ClusterOfProcesses tasks = cluster(workers, scenario, flags);
  tasks.start_all();
  return collect(tasks);
}

void expect_done(const ClusterRun& run) {
  for (const int exit_code : run.exit_codes) ASSERT_EQ(exit_code, 0) << run.out;
  // What all tasks must agree on begins with "same_".
  for (const auto& [name, value] : run.figures[0]) {
    if (!name.starts_with("same_")) continue;
    for (const Figures& other : run.figures) EXPECT_EQ(other.at(name), value) << name << "\n" << run.out;
  }
}

struct Topology {
  int workers;
  int replicas;
  std::string bytes_per_pack = "0";
};

class EveryTopology : public testing::TestWithParam<Topology> {};

INSTANTIATE_TEST_SUITE_P(MultiWorker, EveryTopology,
                         testing::Values(Topology{2, 1}, Topology{2, 1, "4096"}, Topology{2, 2},
                                         Topology{2, 2, "4096"}, Topology{3, 1}, Topology{4, 1}),
                         [](const auto& info) {
                           return std::to_string(info.param.workers) + "x" +
                                  std::to_string(info.param.replicas) +
                                  (info.param.bytes_per_pack == "0" ? "" : "InSmallPacks");
                         });

TEST_P(EveryTopology, EqualsOneReplica) {
  const auto& [workers, replicas, bytes_per_pack] = GetParam();
  const ClusterRun all = run(workers, "equivalence",
                             {"--replicas", std::to_string(replicas), "--bytes_per_pack", bytes_per_pack});
  expect_done(all);
  EXPECT_EQ(all.number("replicas"), workers * replicas);
  EXPECT_LT(all.number("float32_to_one"), 1e-5);
  EXPECT_LT(all.number("float64_to_one"), 1e-9);
  for (std::size_t task = 0; task < all.figures.size(); ++task) {
    EXPECT_EQ(all.number("again", task), 1) << "two runs differ";
    EXPECT_EQ(all.number("never_moved", task), 1);
    EXPECT_EQ(all.number("rare_moved", task), 1);
  }
  if (workers * replicas != 2) return;
  // Two summands: no order of adding can round differently.
  const Figures& chief = all.figures[0];
  EXPECT_EQ(chief.at("mirrored_float32"), chief.at("same_float32"));
  EXPECT_EQ(chief.at("mirrored_mixed"), chief.at("same_mixed"));
  EXPECT_EQ(chief.at("mirrored_mixed_digest"), chief.at("same_mixed_digest"));
}

TEST(MultiWorker, GradientsCanTravelIn16Bits) {
  const ClusterRun all = run(3, "wire_format", {"--bfloat16", "--bytes_per_pack", "100000"});
  expect_done(all);
  EXPECT_LT(all.number("to_one"), 0.05);
  EXPECT_GT(all.number("to_one"), 1e-5);
}

TEST(MultiWorker, ComputesInBfloat16AndAgreesWithMirroredToTheBit) {
  for (const int workers : {1, 2}) {
    const ClusterRun all = run(workers, "half_precision");
    expect_done(all);
    const Figures& chief = all.figures[0];
    EXPECT_EQ(chief.at("same_trail").size(), 64u);
    EXPECT_EQ(chief.at("mirrored"), chief.at("same_trail")) << workers;
    // Each task rounds its own gradients to bfloat16.
    EXPECT_LT(all.number("to_one"), 2e-3) << workers;
    EXPECT_LT(all.number("to_float32"), 1e-2) << workers;
    EXPECT_GT(all.number("to_float32"), 1e-6) << workers;
    for (std::size_t task = 0; task < all.figures.size(); ++task) {
      EXPECT_EQ(all.number("all_float32", task), 1);
    }
  }
}

TEST(MultiWorker, AnInfinityOnOneTaskSkipsTheStepOnAllAndHalvesTheLossScale) {
  const ClusterRun all = run(2, "loss_scale");
  expect_done(all);
  EXPECT_EQ(all.number("bad_mine", 0), 2);
  EXPECT_EQ(all.figures[1].at("bad_mine"), "inf");
  for (std::size_t task = 0; task < 2; ++task) {
    const double first = all.number("same_weight_first", task);
    EXPECT_EQ(all.number("same_scale_first", task), 8);
    EXPECT_EQ(all.number("same_weight_bad", task), first);
    EXPECT_EQ(all.number("same_scale_bad", task), 4);
    // The momentum stayed as it was: this is its second step.
    EXPECT_NEAR(all.number("same_weight_after", task), first - 0.5 * 1.9, 1e-6);
    EXPECT_EQ(all.number("same_scale_after", task), 4);
  }
}

TEST(MultiWorker, AnOptimizerWithoutShardsUpdatesEveryCopy) {
  const ClusterRun all = run(2, "other_optimizer");
  expect_done(all);
  EXPECT_EQ(all.figures[0].at("mirrored"), all.figures[0].at("same_trail"));
}

TEST(MultiWorker, ValuesAreTheChiefsAndCombineInReplicaOrder) {
  const ClusterRun all = run(2, "values", {"--replicas", "2"});
  expect_done(all);
  for (std::size_t task = 0; task < 2; ++task) {
    EXPECT_EQ(all.number("bias", task), 100);
    EXPECT_EQ(all.number("seed", task), 40);
    EXPECT_EQ(all.number("sum_of_ids", task), 0 + 1 + 2 + 3);
    EXPECT_EQ(all.number("mean_of_ids", task), 1.5);
    EXPECT_EQ(all.number("ragged_mean", task), (0.0 + 2 * 1 + 3 * 2 + 4 * 3) / 10);
    EXPECT_EQ(all.figures[task].at("gathered"), "0,1,1,2,2,2,3,3,3,3");
    EXPECT_EQ(all.number("squares", task), 1 + 4 + 9 + 16);
    // d(sum over 4 replicas of the sum)/dx = 4 x 2 x, on a task's first replica.
    EXPECT_EQ(all.number("gradient_of_first", task), 4 * 2 * (task == 0 ? 1 : 3));
    // 0 + 1 + 1 + 2 + 2 + 2 + 3 x 4 numbers, 10 in all; gradients 1 + 2 + 3 + 4, as the merged sum.
    EXPECT_EQ(all.figures[task].at("merged"), "20 10 10 10");
    EXPECT_EQ(all.number("values_made", task), 6);
    EXPECT_DOUBLE_EQ(all.number("metric", task), (1.0 * 1 + 2.0 * 2 + 3.0 * 3) / 6);
    EXPECT_EQ(all.number("metric_reset", task), 0);
    EXPECT_EQ(all.number("stopped_after", task), 3);
  }
}

TEST(MultiWorker, EvaluatesAndPredictsEachExampleOnce) {
  const ClusterRun all = run(2, "evaluation", {"--replicas", "2"});
  expect_done(all);
  for (std::size_t task = 0; task < 2; ++task) {
    EXPECT_LT(all.number("loss_off", task), 1e-6);
    EXPECT_LT(all.number("accuracy_off", task), 1e-12);
    EXPECT_LT(all.number("predict_off", task), 1e-6);
    EXPECT_EQ(all.number("predict_rows", task), 13);
    EXPECT_EQ(all.number("few_rows", task), 1);
  }
}

TEST(MultiWorker, SharesTheInput) {
  const ClusterRun all = run(2, "input", {"--replicas", "2"});
  expect_done(all);
  const Figures& first = all.figures[0];
  const Figures& second = all.figures[1];
  EXPECT_EQ(first.at("data"), "0|1;4|5;8|9;12| rows=13");
  EXPECT_EQ(second.at("data"), "2|3;6|7;10|11;| rows=13");
  EXPECT_EQ(first.at("file"), "0|1;2|3;4|5;6| rows=10");
  EXPECT_EQ(second.at("file"), "100|101;102|;|;| rows=10");
  EXPECT_EQ(first.at("empty"), "0|1;2|3;4| rows=5");
  EXPECT_EQ(second.at("empty"), "|;|;| rows=5");
  EXPECT_EQ(first.at("off"), "0|1;2| rows=6");
  EXPECT_EQ(second.at("off"), "0|1;2| rows=6");
  EXPECT_EQ(first.at("hint"), "0|2;4|6 rows=8");
  EXPECT_EQ(second.at("hint"), "1|3;5|7 rows=8");
  EXPECT_EQ(first.at("function"), "0|2;4|6;8| rows=10");
  EXPECT_EQ(second.at("function"), "1|3;5|7;9| rows=10");
  for (const Figures& task : all.figures) {
    EXPECT_EQ(task.at("resumed"), "1");
    EXPECT_EQ(task.at("finite"), "1");
    EXPECT_EQ(task.at("predicted"), "12");
    EXPECT_EQ(task.at("steps"), "10");  // the first task has 10 rows, 2 a step, twice
  }
  EXPECT_NE(all.out.find("FILE sharding"), std::string::npos);
}

TEST(MultiWorker, SharesRecordFilesByEveryPolicy) {
  const TempFolder folder;
  {
    internal::ShardedTfRecordWriter writer(folder.file("numbers"), 2);
    for (std::int64_t i = 0; i < 12; ++i) {
      writer.append(internal::encode_example({{{"x", std::vector<std::int64_t>{i}}}}));
    }
    writer.close();
  }
  // The first file has the even numbers, the second the odd ones.
  const ClusterRun all = run(2, "record_files", {"--folder", folder.path()});
  expect_done(all);
  const Figures& first = all.figures[0];
  const Figures& second = all.figures[1];
  for (const char* by_file : {"auto", "file"}) {
    EXPECT_EQ(first.at(by_file), "0,2;4,6;8,10 rows=12");
    EXPECT_EQ(second.at(by_file), "1,3;5,7;9,11 rows=12");
  }
  EXPECT_EQ(first.at("data"), "0,2;8,10;5,7 rows=12");
  EXPECT_EQ(second.at("data"), "4,6;1,3;9,11 rows=12");
  EXPECT_EQ(first.at("off"), "0,2;4,6;8,10;1,3;5,7;9,11 rows=24");
  EXPECT_EQ(second.at("off"), first.at("off"));
  EXPECT_EQ(first.at("hint"), "0,4;8,1;5,9 rows=12");
  EXPECT_EQ(second.at("hint"), "2,6;10,3;7,11 rows=12");
}

TEST(MultiWorker, BatchNormCanBeSynchronisedOverTasks) {
  const ClusterRun all = run(2, "sync_batch_norm", {"--replicas", "2"});
  expect_done(all);
  EXPECT_LT(all.number("to_one"), 1e-9);
}

TEST(MultiWorker, TheChiefWritesAndReadsWeightsForAll) {
  const ClusterRun all = run(2, "saving", {"--replicas", "2"});
  expect_done(all);
  for (std::size_t task = 0; task < 2; ++task) {
    EXPECT_EQ(all.number("files", task), task == 0 ? 2 : 0);
    EXPECT_EQ(all.number("loaded", task), 1);
    const std::string& error = all.figures[task].at("error");
    EXPECT_NE(error.find("No such file"), std::string::npos) << error;
    EXPECT_EQ(error.starts_with("worker:0: "), task == 1) << error;
  }
}

TEST(MultiWorker, DifferentModelsAreRefusedAndBothNamed) {
  const ClusterRun all = run(2, "different_models");
  for (const std::string& line : all.last_lines) {
    EXPECT_NE(line.find("different models"), std::string::npos) << all.out;
    EXPECT_NE(
        line.find("worker:0 has parameter \"weight\" Float [2, 3], worker:1 has parameter \"weight\" Float "
                  "[3, 3]"),
        std::string::npos)
        << all.out;
  }
  EXPECT_EQ(std::ranges::count(all.exit_codes, 0), 0);
}

TEST(MultiWorker, DifferentProgramsAreRefusedAtTheJoin) {
  ClusterOfProcesses tasks = cluster(2, "values", {"--join_timeout", "3"});
  tasks.start(0);
  tasks.start(1, {"--threads", "2"});
  const ClusterRun all = collect(tasks);
  EXPECT_NE(all.out.find("were started differently: threads_per_replica is "), std::string::npos) << all.out;
  // Whoever is refused ends at once; the other goes on waiting for one that fits.
  EXPECT_EQ(std::ranges::count(all.exit_codes, 0), 0);
  EXPECT_GE(std::ranges::count(all.exit_codes, 2), 1) << all.out;
}

struct Failure {
  const char* scenario;
  const char* reason;
  int exit_code;
};

class OneTaskFails : public testing::TestWithParam<Failure> {};

INSTANTIATE_TEST_SUITE_P(MultiWorker, OneTaskFails,
                         testing::Values(Failure{"throws_in_callback", "the callback is not amused", 2},
                                         Failure{"throws_on_nan", "the loss is nan at step 6", 1},
                                         Failure{"throws_in_reader", "the file is damaged", 2}),
                         [](const auto& info) {
                           std::string name = info.param.scenario;
                           std::erase(name, '_');
                           return name;
                         });

TEST_P(OneTaskFails, AllStopAndSayWhy) {
  const auto& [scenario, reason, exit_code] = GetParam();
  const ClusterRun all = run(3, scenario);
  EXPECT_EQ(all.exit_codes[1], exit_code) << all.out;
  for (const std::size_t other : {0U, 2U}) {
    EXPECT_EQ(all.exit_codes[other], 1) << all.out;
    EXPECT_NE(all.last_lines[other].find("worker:1 failed at step"), std::string::npos) << all.out;
    EXPECT_NE(all.last_lines[other].find(reason), std::string::npos) << all.out;
  }
}

// In one pack the replica's thread waits for the others, in several a thread of the communicator's.
class LossOfATask : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(MultiWorker, LossOfATask, testing::Values("0", "1"));

TEST_P(LossOfATask, EndsTheOthersWith75) {
  ClusterOfProcesses tasks = cluster(3, "until_killed", {"--bytes_per_pack", GetParam()});
  tasks.start_all();
  for (int i = 0; i < 3; ++i) tasks[i].wait_for("step 20");
  tasks[1].send(SIGKILL);
  const auto killed_at = std::chrono::steady_clock::now();
  const ClusterRun all = collect(tasks);
  EXPECT_LT(std::chrono::steady_clock::now() - killed_at, std::chrono::seconds(5));
  for (const std::size_t other : {0U, 2U}) {
    EXPECT_EQ(all.exit_codes[other], 75) << all.out;
    EXPECT_NE(all.last_lines[other].find("worker:1"), std::string::npos) << all.out;
    EXPECT_NE(all.last_lines[other].find("step"), std::string::npos) << all.out;
  }
}

TEST(MultiWorker, ATimeoutNamesTheTaskThatIsLate) {
  const ClusterRun all = run(2, "one_stalls", {"--timeout", "0.5"});
  EXPECT_NE(all.exit_codes[0], 0);
  EXPECT_NE(all.last_lines[0].find("worker:1"), std::string::npos) << all.out;
}

}  // namespace
}  // namespace tandem
