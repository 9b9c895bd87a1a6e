#include <gtest/gtest.h>

#include "cluster/slurm_nodes.h"
#include "cluster/support.h"

namespace tandem {
namespace {

using internal::expand_nodes;
using internal::expand_tasks_per_node;
using testing_support::accept;
using testing_support::contains;
using testing_support::message_of;
using testing_support::refusal;
using testing_support::variables;

using Names = std::vector<std::string>;

TEST(SlurmNodes, ExpandsRangesAndKeepsZeros) {
  const auto nodes = [](const std::string& list) { return expand_nodes(list, "SLURM_STEP_NODELIST"); };
  EXPECT_EQ(nodes("n1"), Names{"n1"});
  EXPECT_EQ(nodes("n[1,3]"), (Names{"n1", "n3"}));
  EXPECT_EQ(nodes("n[1-3]"), (Names{"n1", "n2", "n3"}));
  EXPECT_EQ(nodes("a,b,c"), (Names{"a", "b", "c"}));
  EXPECT_EQ(nodes("n[1-2],m5,o[3-4,6,7-9]"), (Names{"n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"}));
  EXPECT_EQ(nodes("n[0001-0003],m5,o[009-011]"),
            (Names{"n0001", "n0002", "n0003", "m5", "o009", "o010", "o011"}));
  EXPECT_EQ(nodes("n[01-03,7],gpu[1-2]-ib"), (Names{"n01", "n02", "n03", "n7", "gpu1-ib", "gpu2-ib"}));
  EXPECT_EQ(nodes("n[8-11]"), (Names{"n8", "n9", "n10", "n11"}));
  EXPECT_EQ(nodes("n[098-101]"), (Names{"n098", "n099", "n100", "n101"}));
  EXPECT_EQ(nodes("r[1-2]n[1-2]"), (Names{"r1n1", "r1n2", "r2n1", "r2n2"}));
  EXPECT_EQ(nodes("[1-2]"), (Names{"1", "2"}));
  EXPECT_EQ(nodes("login-1.cluster"), Names{"login-1.cluster"});
  EXPECT_EQ(nodes("n[0-65535]").size(), 65536u);
}

TEST(SlurmNodes, RefusesListsThatAreNone) {
  for (const char* list : {"",
                           ",",
                           "n1,",
                           ",n1",
                           "n1,,n2",
                           "n[",
                           "n[1",
                           "n]",
                           "n[]",
                           "n[1-]",
                           "n[-1]",
                           "n[3-1]",
                           "n[a-b]",
                           "n[1-2",
                           "n[1-2]]",
                           "n[[1]]",
                           "n[1,]",
                           "n[1-2-3]",
                           "n[99999999999]",
                           "n[0-99999999]",
                           "a[0-999]b[0-999]",
                           "n\n1",
                           "n[1 - 2]",
                           "n[1]\x01"}) {
    const auto line = message_of<InvalidArgument>([&] { expand_nodes(list, "SLURM_STEP_NODELIST"); });
    EXPECT_EQ(line.find("SLURM_STEP_NODELIST is \""), 0u) << line;
    EXPECT_TRUE(contains(line, "expected a list such as \"n[01-03,7],m5\""));
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
}

TEST(SlurmTasksPerNode, ExpandsRepeats) {
  const auto counts = [](const std::string& list) { return expand_tasks_per_node(list, "X"); };
  EXPECT_EQ(counts("2"), std::vector<int>{2});
  EXPECT_EQ(counts("2,1,3"), (std::vector<int>{2, 1, 3}));
  EXPECT_EQ(counts("3(x2),2,1"), (std::vector<int>{3, 3, 2, 1}));
  EXPECT_EQ(counts("3(x2),2,11(x4)"), (std::vector<int>{3, 3, 2, 11, 11, 11, 11}));
  EXPECT_EQ(counts("13(x10)"), std::vector<int>(10, 13));
  for (const char* list : {"", "x", "0", "-1", "2(x0)", "2(x-1)", "2(x", "2(x)", "2(x3", "(x3)", "2(y3)",
                           "2,", "2(x3)4", "1(x99999999)", "99999999999"}) {
    EXPECT_TRUE(
        contains(message_of<InvalidArgument>([&] { counts(list); }), "expected a list such as \"2(x3),1\""))
        << list;
  }
}

std::map<std::string, std::string> three_nodes() {
  return {{"SLURM_PROCID", "0"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
          {"SLURM_STEP_NODELIST", "t02n13,t02n41,t02n43"}};
}

std::map<std::string, std::string> with(std::map<std::string, std::string> values,
                                        const std::map<std::string, std::string>& changed) {
  for (const auto& [name, value] : changed) values[name] = value;
  return values;
}

SlurmClusterResolver slurm(const std::map<std::string, std::string>& values) {
  return SlurmClusterResolver({.environment = variables(values)});
}

TEST(Slurm, MakesEveryTaskAWorker) {
  const auto resolved = accept(slurm(with(three_nodes(), {{"SLURM_PROCID", "2"}})));
  EXPECT_EQ(resolved.cluster, ClusterSpec({{"worker", {"t02n13:8888", "t02n41:8888", "t02n43:8888"}}}));
  EXPECT_EQ(resolved.task->name(), "worker:2");
  EXPECT_EQ(resolved.master(), "grpc://t02n43:8888");
  EXPECT_EQ(resolved.source, "Slurm");
}

TEST(Slurm, DealsTasksOutToJobs) {
  const auto environment =
      variables(with(three_nodes(), {{"SLURM_STEP_TASKS_PER_NODE", ""}, {"SLURM_PROCID", "2"}}));
  const auto resolved = accept(SlurmClusterResolver({.jobs = {{"ps", 1}, {"worker", 2}},
                                                     .port_base = 9000,
                                                     .tasks_per_node = 1,
                                                     .environment = environment}));
  EXPECT_EQ(resolved.cluster,
            ClusterSpec({{"ps", {"t02n13:9000"}}, {"worker", {"t02n41:9000", "t02n43:9000"}}}));
  EXPECT_EQ(resolved.task->name(), "worker:1");
  EXPECT_TRUE(
      contains(refusal(SlurmClusterResolver({.jobs = {{"worker", 4}}, .environment = environment})),
               "the jobs have 4 tasks, but SLURM_STEP_NUM_TASKS is 3: start as many, e.g. srun -n 4"));
  EXPECT_TRUE(contains(refusal(SlurmClusterResolver({.jobs = {{"trainer", 3}}, .environment = environment})),
                       "Slurm: cluster has the job \"trainer\""));
}

TEST(Slurm, GivesEachTaskOfANodeItsPort) {
  const auto values = std::map<std::string, std::string>{{"SLURM_PROCID", "1"},
                                                         {"SLURM_STEP_NUM_TASKS", "5"},
                                                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                                                         {"SLURM_STEP_NODELIST", "t02n[13,41,43]"}};
  const auto resolved =
      accept(SlurmClusterResolver({.jobs = {{"ps", 1}, {"worker", 4}}, .environment = variables(values)}));
  EXPECT_EQ(resolved.cluster,
            ClusterSpec({{"ps", {"t02n13:8888"}},
                         {"worker", {"t02n13:8889", "t02n41:8888", "t02n41:8889", "t02n43:8888"}}}));
  EXPECT_EQ(resolved.task->name(), "worker:0");
  const auto cyclic = accept(slurm(with(values, {{"SLURM_DISTRIBUTION", "cyclic"}})));
  EXPECT_EQ(
      cyclic.cluster,
      ClusterSpec({{"worker", {"t02n13:8888", "t02n41:8888", "t02n43:8888", "t02n13:8889", "t02n41:8889"}}}));
  EXPECT_TRUE(contains(refusal(slurm(with(values, {{"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "0"}}))),
                       "start with srun --distribution block"));
  accept(slurm(with(values, {{"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "1"}})));
}

TEST(Slurm, FallsBackToTheVariablesOfTheJob) {
  const auto resolved = accept(slurm({{"SLURM_PROCID", "3"},
                                      {"SLURM_NTASKS", "4"},
                                      {"SLURM_NTASKS_PER_NODE", "2"},
                                      {"SLURM_JOB_NODELIST", "n[01-02]"}}));
  EXPECT_EQ(resolved.cluster, ClusterSpec({{"worker", {"n01:8888", "n01:8889", "n02:8888", "n02:8889"}}}));
  EXPECT_EQ(accept(slurm({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODELIST", "n1"}})).cluster,
            ClusterSpec({{"worker", {"n1:8888", "n1:8889"}}}));
}

TEST(Slurm, IsNotThereWithoutItsVariables) {
  EXPECT_FALSE(slurm({}).resolve());
  EXPECT_FALSE(slurm({{"SLURM_PROCID", "0"}}).resolve());  // a batch script without --ntasks
  EXPECT_FALSE(slurm({{"SLURM_NTASKS", "4"}}).resolve());  // an allocation, before srun
}

TEST(Slurm, LeavesTheProcessToALauncherInsideIt) {
  // srun starts one torchrun on each node: all of its processes have the same SLURM_PROCID.
  EXPECT_FALSE(slurm(with(three_nodes(), {{"RANK", "1"}, {"WORLD_SIZE", "6"}})).resolve());
  EXPECT_FALSE(
      slurm(with(three_nodes(), {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}})).resolve());
  // A script that copies Slurm's numbers.
  EXPECT_TRUE(slurm(with(three_nodes(), {{"RANK", "0"}, {"WORLD_SIZE", "3"}})).resolve());
}

TEST(Slurm, RefusesNumbersThatDoNotAgree) {
  EXPECT_EQ(refusal(slurm(with(three_nodes(), {{"SLURM_PROCID", "3"}}))),
            "SLURM_PROCID is 3, but SLURM_STEP_NUM_TASKS is 3: expected 0 to 2");
  EXPECT_TRUE(contains(refusal(slurm(with(three_nodes(), {{"SLURM_PROCID", "x"}}))),
                       "SLURM_PROCID is \"x\": expected"));
  EXPECT_TRUE(contains(refusal(slurm(with(three_nodes(), {{"SLURM_STEP_NUM_TASKS", "0"}}))), "from 1 on"));
  EXPECT_TRUE(contains(refusal(slurm(with(three_nodes(), {{"SLURM_STEP_NODELIST", ""}}))),
                       "SLURM_STEP_NODELIST is missing"));
  EXPECT_TRUE(contains(refusal(slurm(with(three_nodes(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}}))),
                       "6 tasks on 3 nodes by SLURM_STEP_TASKS_PER_NODE, and 3 by"));
  EXPECT_TRUE(
      contains(refusal(slurm(with(three_nodes(), {{"SLURM_STEP_TASKS_PER_NODE", "2000000000(x60000)"}}))),
               "and 3 by"));
  EXPECT_TRUE(contains(
      refusal(slurm(with(three_nodes(), {{"SLURM_STEP_TASKS_PER_NODE", ""}, {"SLURM_STEP_NUM_TASKS", "7"}}))),
      "SLURM_STEP_TASKS_PER_NODE is missing"));
  EXPECT_TRUE(
      contains(refusal(SlurmClusterResolver({.port_base = 65536, .environment = variables(three_nodes())})),
               "Slurm: cluster.worker[0] is \"t02n13:65536\": the port"));
}

MpiClusterResolver mpi(const std::map<std::string, std::string>& values,
                       std::vector<std::string> hosts = {}) {
  return MpiClusterResolver({.hosts = std::move(hosts), .environment = variables(values)});
}

TEST(Mpi, KnowsTheAddressesOfOneMachine) {
  const auto resolved = accept(mpi({{"OMPI_COMM_WORLD_RANK", "1"},
                                    {"OMPI_COMM_WORLD_SIZE", "2"},
                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(resolved.cluster, ClusterSpec({{"worker", {"localhost:8888", "localhost:8889"}}}));
  EXPECT_EQ(resolved.task->name(), "worker:1");
  EXPECT_EQ(resolved.source, "MPI");
  EXPECT_FALSE(mpi({}).resolve());
}

TEST(Mpi, NeedsTheAddressesOfSeveralMachines) {
  const std::map<std::string, std::string> values = {
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  EXPECT_EQ(refusal(mpi(values)),
            "MPI: OMPI_COMM_WORLD_SIZE is 2 and OMPI_COMM_WORLD_LOCAL_SIZE is 1, so some tasks run on "
            "machines that "
            "these variables do not name: give the address of each rank, as in --worker_hosts "
            "10.0.0.1:2222,10.0.0.2:2222, or TF_CONFIG");
  EXPECT_EQ(accept(mpi(values, {"a:1", "b:1"})).master(), "b:1");
  EXPECT_TRUE(contains(refusal(mpi(values, {"a:1"})), "but 1 addresses are given"));
  EXPECT_TRUE(
      contains(refusal(mpi(values, {"a:1", "a:1"})), "MPI: cluster.worker[1] is \"a:1\", which worker:0"));
  EXPECT_TRUE(contains(refusal(mpi({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}})),
                       "expected 0 to 1"));
  EXPECT_TRUE(
      contains(refusal(mpi({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "2"}})), "is \"x\""));
}

std::map<std::string, std::string> torchrun_variables() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"}};
}

TEST(Torchrun, KeepsOffThePortThatTorchrunUses) {
  const auto resolved = accept(TorchrunClusterResolver({.environment = variables(torchrun_variables())}));
  EXPECT_EQ(resolved.cluster, ClusterSpec({{"worker", {"localhost:29501", "localhost:29502"}}}));
  EXPECT_EQ(resolved.task->name(), "worker:1");
  EXPECT_EQ(
      accept(TorchrunClusterResolver({.port_base = 7000, .environment = variables(torchrun_variables())}))
          .master(),
      "localhost:7001");
  EXPECT_TRUE(
      contains(refusal(TorchrunClusterResolver(
                   {.environment = variables(with(torchrun_variables(), {{"MASTER_PORT", "65534"}}))})),
               "2 tasks do not fit on the ports from 65535 to 65535"));
}

TEST(Torchrun, NeedsTheAddressesOfSeveralMachines) {
  const auto two_machines = variables(with(torchrun_variables(), {{"WORLD_SIZE", "4"}}));
  EXPECT_TRUE(contains(refusal(TorchrunClusterResolver({.environment = two_machines})),
                       "WORLD_SIZE is 4 and LOCAL_WORLD_SIZE is 2"));
  EXPECT_EQ(
      accept(TorchrunClusterResolver({.hosts = {"a:1", "b:1", "c:1", "d:1"}, .environment = two_machines}))
          .master(),
      "b:1");
  EXPECT_TRUE(contains(
      refusal(TorchrunClusterResolver({.environment = variables({{"RANK", "0"}, {"WORLD_SIZE", "2"}})})),
      "LOCAL_WORLD_SIZE is missing"));
  EXPECT_FALSE(TorchrunClusterResolver({.environment = variables({{"RANK", "0"}})}).resolve());
}

}  // namespace
}  // namespace tandem
