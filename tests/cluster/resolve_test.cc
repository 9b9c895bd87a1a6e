#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "cluster/support.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::accept;
using testing_support::contains;
using testing_support::message_of;
using testing_support::refusal;
using testing_support::TempFolder;
using testing_support::variables;

ClusterSpec ps_and_workers() {
  return ClusterSpec(
      {{"ps", {"ps0:2222", "ps1:2222"}}, {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}});
}

std::shared_ptr<const ClusterResolver> simple(ClusterSpec cluster, std::optional<TaskId> task = {}) {
  return std::make_shared<SimpleClusterResolver>(
      ResolvedCluster{.cluster = std::move(cluster), .task = std::move(task)});
}

ClusterSpec sparse_workers(std::map<int, std::string> tasks) {
  return ClusterSpec({{"worker", std::move(tasks)}});
}

TEST(SimpleResolver, GivesBackWhatItWasGivenOnceChecked) {
  const ResolvedCluster given{
      .cluster = ps_and_workers(), .task = TaskId{"ps", 1}, .rpc_layer = "grpc", .environment = "cloud"};
  const auto resolved = accept(SimpleClusterResolver(given));
  EXPECT_EQ(resolved.cluster, ps_and_workers());
  EXPECT_EQ(resolved.environment, "cloud");
  EXPECT_EQ(resolved.master(), "grpc://ps1:2222");
  EXPECT_EQ(accept(*simple(ps_and_workers())).master(), "");  // no task: nobody to name
  EXPECT_FALSE(accept(*simple(ps_and_workers())).is_chief());
  EXPECT_FALSE(accept(*simple(ps_and_workers())).worker_count());
  EXPECT_TRUE(contains(refusal(*simple(ps_and_workers(), TaskId{"worker", 3})), "task.index is 3"));
  EXPECT_TRUE(contains(refusal(*simple(ClusterSpec({{"worker", {"x"}}}))), "the port is missing"));
}

TEST(UnionResolver, OfOneIsThatOne) {
  EXPECT_EQ(accept(UnionClusterResolver({simple(ps_and_workers())})).cluster, ps_and_workers());
  const auto sparse = sparse_workers({{1, "a:1"}, {3, "b:1"}, {5, "c:1"}});
  EXPECT_EQ(accept(UnionClusterResolver({simple(sparse)})).cluster, sparse);
}

TEST(UnionResolver, TakesTheTaskFromTheFirstThatHasOne) {
  const auto first =
      std::make_shared<SimpleClusterResolver>(ResolvedCluster{.cluster = ClusterSpec({{"ps", {"p:1"}}})});
  const auto second = std::make_shared<SimpleClusterResolver>(
      ResolvedCluster{.cluster = ClusterSpec({{"worker", {"a:1", "b:1"}}}),
                      .task = TaskId{"worker", 1},
                      .rpc_layer = "grpc"});
  const auto third = std::make_shared<SimpleClusterResolver>(ResolvedCluster{
      .cluster = ClusterSpec({{"chief", {"c:1"}}}), .task = TaskId{"chief", 0}, .environment = "cloud"});
  const auto whole = accept(UnionClusterResolver({first, second, third}));
  EXPECT_EQ(whole.cluster, ClusterSpec({{"chief", {"c:1"}}, {"ps", {"p:1"}}, {"worker", {"a:1", "b:1"}}}));
  EXPECT_EQ(whole.task->name(), "worker:1");
  EXPECT_EQ(whole.master(), "grpc://b:1");
  EXPECT_EQ(whole.environment, "cloud");
}

TEST(UnionResolver, JoinsListsOfOneJob) {
  const auto whole =
      accept(UnionClusterResolver({simple(ClusterSpec({{"worker", {"w4:1", "w5:1"}}})),
                                   simple(ClusterSpec({{"worker", {"w0:1", "w1:1", "w2:1"}}}))}));
  EXPECT_EQ(whole.cluster, ClusterSpec({{"worker", {"w4:1", "w5:1", "w0:1", "w1:1", "w2:1"}}}));
  EXPECT_EQ(accept(UnionClusterResolver({simple(ps_and_workers()), simple(ps_and_workers())})).cluster,
            ps_and_workers());
}

TEST(UnionResolver, MergesSparseJobsByIndex) {
  EXPECT_EQ(accept(UnionClusterResolver({simple(sparse_workers({{5, "w4:1"}, {9, "w5:1"}})),
                                         simple(sparse_workers({{3, "w0:1"}, {6, "w1:1"}, {7, "w2:1"}}))}))
                .cluster,
            sparse_workers({{3, "w0:1"}, {5, "w4:1"}, {6, "w1:1"}, {7, "w2:1"}, {9, "w5:1"}}));
  EXPECT_EQ(accept(UnionClusterResolver({simple(ClusterSpec({{"worker", {"w4:1", "w5:1"}}})),
                                         simple(sparse_workers({{3, "w0:1"}, {6, "w1:1"}}))}))
                .cluster,
            sparse_workers({{0, "w4:1"}, {1, "w5:1"}, {3, "w0:1"}, {6, "w1:1"}}));
}

TEST(UnionResolver, RefusesTwoAddressesForOneTask) {
  EXPECT_EQ(refusal(UnionClusterResolver({simple(sparse_workers({{7, "w4:1"}, {9, "w5:1"}})),
                                          simple(sparse_workers({{3, "w0:1"}, {7, "w2:1"}}))})),
            "union: worker:7 is at \"w4:1\" in one cluster and at \"w2:1\" in another: expected one address "
            "for each task");
  EXPECT_TRUE(contains(refusal(UnionClusterResolver({simple(ClusterSpec({{"worker", {"w4:1", "w5:1"}}})),
                                                     simple(sparse_workers({{1, "w0:1"}, {2, "w1:1"}}))})),
                       "worker:1 is at \"w5:1\""));
  EXPECT_TRUE(contains(refusal(UnionClusterResolver({simple(ClusterSpec({{"worker", {"a:1", "b:1"}}})),
                                                     simple(ClusterSpec({{"worker", {"b:1"}}}))})),
                       "union: cluster.worker[2] is \"b:1\", which worker:1 has too"));
}

TEST(UnionResolver, IsNothingIfItsPartsAreAndNeedsSome) {
  const auto nothing = std::make_shared<TFConfigClusterResolver>(TaskOverrides{}, variables({}));
  EXPECT_FALSE(UnionClusterResolver({nothing}).resolve());
  EXPECT_EQ(accept(UnionClusterResolver({nothing, simple(ps_and_workers())})).cluster, ps_and_workers());
  EXPECT_THROW(UnionClusterResolver({}), InvalidArgument);
  EXPECT_THROW(UnionClusterResolver({nullptr}), InvalidArgument);
}

TEST(FlagsResolver, MakesWorkersOfHosts) {
  const auto resolved = accept(FlagsClusterResolver({.worker_hosts = "a:1, b:1,c:1", .task_index = 1}));
  EXPECT_EQ(resolved.cluster, ClusterSpec({{"worker", {"a:1", "b:1", "c:1"}}}));
  EXPECT_EQ(resolved.task->name(), "worker:1");
  EXPECT_EQ(resolved.source, "--worker_hosts");
  EXPECT_EQ(accept(FlagsClusterResolver({.worker_hosts = "a:1"})).task->name(), "worker:0");
  EXPECT_FALSE(FlagsClusterResolver({.task_index = 1}).resolve());
}

TEST(FlagsResolver, NamesTheWrongFlag) {
  const auto line = [](ClusterFlags flags) { return refusal(FlagsClusterResolver(std::move(flags))); };
  EXPECT_TRUE(contains(line({.worker_hosts = "a:1,b:1"}),
                       "--worker_hosts has 2 workers, but --task_index is missing"));
  EXPECT_TRUE(contains(line({.worker_hosts = "a:1,b:1", .task_index = 2}),
                       "--task_index is 2: --worker_hosts has 2"));
  EXPECT_TRUE(contains(line({.worker_hosts = "a:1", .task_index = -1}), "--task_index is -1"));
  EXPECT_TRUE(contains(line({.worker_hosts = "a:1,b", .task_index = 0}),
                       "--worker_hosts, entry 1, is \"b\": the port"));
  EXPECT_TRUE(contains(line({.worker_hosts = "a:1,", .task_index = 0}), "--worker_hosts, entry 1, is \"\""));
  EXPECT_TRUE(
      contains(line({.worker_hosts = "a:1,a:1", .task_index = 0}), "--worker_hosts: cluster.worker[1] is"));
  EXPECT_TRUE(contains(line({.worker_hosts = "a:1", .task_type = "ps"}), "--task_type is \"ps\""));
}

const char* const kTfConfig =
    R"({"cluster": {"worker": ["t:1", "u:1"]}, "task": {"type": "worker", "index": 1}})";

// Resolves and returns what was logged meanwhile.
std::pair<ResolvedCluster, std::string> resolve_and_listen(const ClusterFlags& flags,
                                                           const Environment& environment) {
  testing::internal::CaptureStderr();
  auto resolved = resolve_cluster(flags, environment);
  return {std::move(resolved), testing::internal::GetCapturedStderr()};
}

TEST(ResolveCluster, IsAloneIfNothingIsSaid) {
  const auto alone = resolve_cluster({}, variables({}));
  EXPECT_TRUE(alone.cluster.empty());
  EXPECT_EQ(alone.source, "");
  EXPECT_TRUE(alone.is_chief());
  EXPECT_TRUE(resolve_cluster({.task_index = 0}, variables({})).cluster.empty());
  EXPECT_TRUE(contains(message_of<InvalidArgument>([] { resolve_cluster({.task_index = 1}, variables({})); }),
                       "--task_index 1 is given, but there is no cluster"));
  EXPECT_TRUE(
      contains(message_of<InvalidArgument>([] { resolve_cluster({.task_type = "ps"}, variables({})); }),
               "--task_type \"ps\" is given, but there is no cluster"));
}

TEST(ResolveCluster, PrefersFlagsThenFilesThenTfConfig) {
  const TempFolder folder;
  const auto write = [&](const char* name, const char* host) {
    std::ofstream(folder.file(name)) << R"({"cluster": {"worker": [")" << host
                                     << R"(:1"]}, "task": {"type": "worker", "index": 0}})";
    return folder.file(name);
  };
  const auto environment =
      variables({{"TANDEM_CLUSTER_FILE", write("a", "variable")}, {"TF_CONFIG", kTfConfig}});
  const ClusterFlags all{.cluster_file = write("b", "flag"), .worker_hosts = "h:1"};
  EXPECT_EQ(resolve_cluster(all, environment).cluster.task_address("worker", 0), "h:1");
  EXPECT_EQ(
      resolve_cluster({.cluster_file = all.cluster_file}, environment).cluster.task_address("worker", 0),
      "flag:1");
  EXPECT_EQ(resolve_cluster({}, environment).cluster.task_address("worker", 0), "variable:1");
  EXPECT_EQ(resolve_cluster({}, variables({{"TF_CONFIG", kTfConfig}})).cluster.task_address("worker", 0),
            "t:1");
  EXPECT_THROW(resolve_cluster({.cluster_file = folder.file("none")}, environment), NotFound);
}

TEST(ResolveCluster, SaysOnceThatFlagsWin) {
  const auto environment = variables({{"TF_CONFIG", kTfConfig}, {"TANDEM_CLUSTER_FILE", "/nonexistent"}});
  const auto [resolved, log] = resolve_and_listen({.worker_hosts = "h:1,i:1", .task_index = 1}, environment);
  EXPECT_EQ(resolved.task->name(), "worker:1");
  EXPECT_TRUE(contains(log, "the cluster is that of --worker_hosts; what TANDEM_CLUSTER_FILE says differs"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  const auto broken = variables({{"TF_CONFIG", "{"}});
  EXPECT_TRUE(
      contains(resolve_and_listen({.worker_hosts = "h:1"}, broken).second, "what TF_CONFIG says differs"));
  EXPECT_THROW(resolve_cluster({}, broken), InvalidArgument);
  const auto same =
      resolve_and_listen({.worker_hosts = "t:1,u:1", .task_index = 1}, variables({{"TF_CONFIG", kTfConfig}}));
  EXPECT_EQ(same.second, "");
}

TEST(ResolveCluster, LetsFlagsSayWhichTaskThisIs) {
  const auto environment = variables({{"TF_CONFIG", kTfConfig}});
  EXPECT_EQ(resolve_cluster({.task_index = 0}, environment).task->name(), "worker:0");
  EXPECT_EQ(resolve_cluster({.task_type = "evaluator", .task_index = 0}, environment).task->name(),
            "evaluator:0");
}

TEST(ResolveCluster, AsksLaunchersOnlyOfMoreThanOneTask) {
  const std::map<std::string, std::string> slurm = {
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NODELIST", "n[1-2]"}};
  EXPECT_EQ(resolve_cluster({}, variables(slurm)).source, "Slurm");
  auto with_tf_config = slurm;
  with_tf_config["TF_CONFIG"] = kTfConfig;
  const auto [explicitly, log] = resolve_and_listen({}, variables(with_tf_config));
  EXPECT_EQ(explicitly.source, "TF_CONFIG");
  EXPECT_EQ(log, "");
  EXPECT_TRUE(resolve_cluster(
                  {}, variables({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_NODELIST", "n1"}}))
                  .cluster.empty());
  EXPECT_TRUE(resolve_cluster({}, variables({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}))
                  .cluster.empty());
  EXPECT_TRUE(resolve_cluster({}, variables({{"RANK", "0"}, {"WORLD_SIZE", "1"}})).cluster.empty());
  EXPECT_EQ(
      resolve_cluster({}, variables({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}})).source,
      "torchrun");
  EXPECT_EQ(resolve_cluster({}, variables({{"OMPI_COMM_WORLD_RANK", "0"},
                                           {"OMPI_COMM_WORLD_SIZE", "2"},
                                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}))
                .source,
            "MPI");
}

TEST(ResolveCluster, TakesTheIndexInWorkerHostsFromTheLauncher) {
  const ClusterFlags flags{.worker_hosts = "a:1,b:1"};
  EXPECT_EQ(resolve_cluster(flags, variables({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}))
                .task->index,
            1);
  EXPECT_EQ(resolve_cluster(flags, variables({{"RANK", "1"}, {"WORLD_SIZE", "2"}})).task->index, 1);
  EXPECT_EQ(resolve_cluster(flags, variables({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}})).task->index, 1);
  EXPECT_THROW(resolve_cluster(flags, variables({})), InvalidArgument);
  EXPECT_THROW(resolve_cluster(flags, variables({{"RANK", "3"}, {"WORLD_SIZE", "4"}})), InvalidArgument);
}

}  // namespace
}  // namespace tandem
