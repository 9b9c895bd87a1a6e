#include "cluster/tf_config.h"

#include <gtest/gtest.h>

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

const char* const kPsAndWorkers = R"("cluster": {"ps": ["ps0:2222", "ps1:2222"], )"
                                  R"("worker": ["worker0:2222", "worker1:2222", "worker2:2222"]})";

std::string with_task(const std::string& task, const std::string& more = "") {
  return std::string("{") + kPsAndWorkers + ", \"task\": " + task + more + "}";
}

TEST(TfConfig, GivesClusterAndTask) {
  const auto resolved = accept(with_task(R"({"type": "ps", "index": 1})"));
  EXPECT_EQ(resolved.cluster, ClusterSpec({{"ps", {"ps0:2222", "ps1:2222"}},
                                           {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}}));
  EXPECT_EQ(resolved.task->name(), "ps:1");
  EXPECT_EQ(resolved.master(), "ps1:2222");
  EXPECT_EQ(resolved.source, "TF_CONFIG");
  EXPECT_EQ(resolved.rpc_layer, "");
}

TEST(TfConfig, ReadsTheOtherKeysOfTensorFlow) {
  const auto resolved = accept(with_task(R"({"type": "ps", "index": "0"})",
                                         R"(, "rpc_layer": "grpc", "environment": "cloud", )"
                                         R"("model_dir": "/data/my model", "session_master": null)"));
  EXPECT_EQ(resolved.rpc_layer, "grpc");
  EXPECT_EQ(resolved.master(), "grpc://ps0:2222");
  EXPECT_EQ(resolved.environment, "cloud");
  EXPECT_EQ(resolved.model_dir, "/data/my model");
  EXPECT_EQ(accept(with_task(R"({"type": "ps", "index": 0})", R"(, "session_master": "sessionmaster:2222")"))
                .master(),
            "sessionmaster:2222");
}

TEST(TfConfig, LetsExplicitValuesWin) {
  const std::string text = with_task(R"({"type": "ps", "index": 1})");
  const auto resolved =
      accept(TFConfigClusterResolver(text, {.task_type = "worker", .task_index = 2, .rpc_layer = "grpc"}));
  EXPECT_EQ(resolved.task->name(), "worker:2");
  EXPECT_EQ(resolved.master(), "grpc://worker2:2222");
  EXPECT_EQ(accept(TFConfigClusterResolver(text, {.task_index = 0})).task->name(), "ps:0");
  EXPECT_TRUE(contains(refusal(TFConfigClusterResolver(text, {.task_index = 2})), "task.index is 2"));
  EXPECT_TRUE(contains(refusal(TFConfigClusterResolver(text, {.task_index = -1})), "task.index is -1"));
  const std::string no_task = std::string("{") + kPsAndWorkers + "}";
  EXPECT_EQ(accept(TFConfigClusterResolver(no_task, {.task_type = "ps", .task_index = 0})).task->name(),
            "ps:0");
}

TEST(TfConfig, IsReadFromTheVariable) {
  EXPECT_FALSE(TFConfigClusterResolver({}, variables({})).resolve());
  EXPECT_FALSE(TFConfigClusterResolver({}, variables({{"TF_CONFIG", ""}})).resolve());
  const auto environment = variables({{"TF_CONFIG", with_task(R"({"type": "worker", "index": 2})")}});
  EXPECT_EQ(accept(TFConfigClusterResolver({}, environment)).task->name(), "worker:2");
}

TEST(TfConfig, WithoutAClusterIsOneProcessAlone) {
  for (const char* text :
       {"{}", R"({"cluster": {}})", R"({"task": {"type": "worker", "index": 0}})", R"({"task": {}})",
        R"({"cluster": {}, "task": {"type": "worker", "index": "0"}})", " \n{ }\n"}) {
    SCOPED_TRACE(text);
    const auto resolved = accept(std::string(text));
    EXPECT_TRUE(resolved.cluster.empty());
    EXPECT_FALSE(resolved.task);
    EXPECT_EQ(resolved.master(), "");
    EXPECT_TRUE(resolved.is_chief());
    EXPECT_EQ(resolved.worker_count(), 1);
    EXPECT_EQ(resolved.id_in_cluster(), 0);
  }
  EXPECT_TRUE(contains(refusal(R"({"task": {"type": "worker", "index": 1}})"),
                       R"(task is "worker:1", but there is no)"));
  EXPECT_TRUE(contains(refusal(R"({"task": {"type": "ps", "index": 0}})"), R"("cluster": {"worker":)"));
}

TEST(TfConfig, TakesAnEvaluatorInsideAndOutsideTheCluster) {
  const auto inside = accept(R"({"cluster": {"worker": ["a:1", "b:1"], "evaluator": ["e:1"]}, )"
                             R"("task": {"type": "evaluator", "index": 0}})");
  EXPECT_TRUE(inside.is_chief());
  EXPECT_EQ(inside.worker_count(), 1);
  EXPECT_EQ(inside.master(), "e:1");
  const auto outside =
      accept(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "evaluator", "index": 0}})");
  EXPECT_TRUE(outside.is_chief());
  EXPECT_FALSE(outside.worker_count());
  EXPECT_FALSE(outside.master());
  EXPECT_EQ(outside.id_in_cluster(), 0);
  EXPECT_TRUE(
      contains(refusal(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 1}})"),
               "an evaluator outside cluster is number 0"));
}

TEST(TfConfig, TakesMasterAsTheOldNameOfTheChief) {
  const auto master = accept(
      R"({"cluster": {"master": ["m:1"], "worker": ["a:1"]}, "task": {"type": "master", "index": 0}})");
  EXPECT_TRUE(master.is_chief());
  EXPECT_EQ(master.id_in_cluster(), 0);
  EXPECT_EQ(master.worker_count(), 2);
  const auto worker = accept(
      R"({"cluster": {"master": ["m:1"], "worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_FALSE(worker.is_chief());
  EXPECT_EQ(worker.id_in_cluster(), 1);
}

TEST(TfConfig, ReadsWhatKubeflowWritesForATfJob) {
  const auto worker = accept(
      R"({"cluster":{"ps":["dist-mnist-ps-0.ns.svc:2222"],"worker":["dist-mnist-worker-0.ns.svc:2222"]},)"
      R"("task":{"type":"worker","index":0},"environment":"cloud"})");
  EXPECT_TRUE(worker.is_chief());
  EXPECT_EQ(worker.environment, "cloud");
}

TEST(TfConfig, ReadsWhatKubeflowWritesForDynamicWorkers) {
  const auto worker = accept(
      R"({"sparseCluster":{"worker":{"2":"w-2.ns.svc:2222"},"ps":["p-0.ns.svc:2222","p-1.ns.svc:2222"]},)"
      R"("task":{"type":"worker","index":2}})");
  EXPECT_EQ(worker.cluster.task_indices("worker"), std::vector<int>{2});
  EXPECT_EQ(worker.cluster.num_tasks("ps"), 2);
  EXPECT_EQ(worker.id_in_cluster(), 2);
  EXPECT_FALSE(worker.is_chief());
  // A ps sees itself alone, and in a list of one even if it is the second.
  const auto ps =
      accept(R"({"sparseCluster":{"worker":{},"ps":["p-1.ns.svc:2222"]},"task":{"type":"ps","index":1}})");
  EXPECT_EQ(ps.cluster.jobs(), std::vector<std::string>{"ps"});
  EXPECT_EQ(ps.cluster.task_address("ps", 1), "p-1.ns.svc:2222");
  // Go writes a list that is not there as null.
  EXPECT_FALSE(
      accept(R"({"sparseCluster":{"worker":{"0":"w:1"},"ps":null},"task":{"type":"worker","index":0}})")
          .cluster.has_job("ps"));
  EXPECT_EQ(accept(R"({"sparse_cluster":{"worker":{"0":"w:1"}},"task":{"type":"worker","index":0}})").cluster,
            ClusterSpec({{"worker", {"w:1"}}}));
  EXPECT_TRUE(
      contains(refusal(R"({"sparseCluster":{"worker":{"0":"w:1"}},"task":{"type":"worker","index":1}})"),
               "task.index is 1"));
  EXPECT_TRUE(contains(refusal(R"({"sparseCluster":{},"cluster":{},"task":{}})"), "are both there"));
  EXPECT_TRUE(contains(refusal(R"({"sparseCluster":3})"), "sparseCluster is 3: expected jobs"));
}

TEST(TfConfig, KeepsNamesInOtherScripts) {
  const auto resolved = accept(R"({"cluster": {"worker": ["训练机-1:2222", "\u8bad\u7ec3\u673a-2:2222"]}, )"
                               R"("task": {"type": "worker", "index": 1}})");
  EXPECT_EQ(resolved.master(), "训练机-2:2222");
  EXPECT_EQ(resolved.cluster.to_json(), R"({"worker":["训练机-1:2222","训练机-2:2222"]})");
}

TEST(TfConfig, IgnoresUnknownKeysWithOneNotice) {
  testing::internal::CaptureStderr();
  accept(with_task(R"({"type": "ps", "index": 0, "trial": "1", "cloud": "xyz"})",
                   R"(, "job": {"a": 1}, "x\ny": 2)"));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, R"(TF_CONFIG: ignored what tandem does not know: "job", "x\x0ay")"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST(TfConfig, RefusesNearMissesOfItsKeys) {
  EXPECT_EQ(refusal(R"({"clusters": {}})"),
            R"(TF_CONFIG: unknown key "clusters" (did you mean "cluster"?): expected {"cluster": {"worker": )"
            R"(["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}})");
  for (const char* key : {"Cluster", "cluser", "clutser", "CLUSTER", "clusterr"}) {
    EXPECT_TRUE(contains(refusal(std::string("{\"") + key + "\": {}}"), R"(did you mean "cluster"?)")) << key;
  }
  for (const char* key : {"tasks", "Task", "taks", "tsk", "tack"}) {
    EXPECT_TRUE(contains(refusal(std::string("{\"") + key + "\": {}}"), R"(did you mean "task"?)")) << key;
  }
  EXPECT_TRUE(
      contains(refusal(with_task(R"({"tpye": "ps", "index": 0})")), R"("tpye" (did you mean "type"?))"));
  EXPECT_TRUE(
      contains(refusal(with_task(R"({"type": "ps", "Index": 0})")), R"("Index" (did you mean "index"?))"));
}

TEST(TfConfig, RefusesATaskThatTheClusterDoesNotHave) {
  EXPECT_EQ(refusal(with_task(R"({"type": "work", "index": 0})")),
            R"(TF_CONFIG: task.type is "work" (did you mean "worker"?): expected chief, worker, ps, )"
            R"(evaluator, master, )"
            R"(as in {"type": "worker", "index": 0})");
  EXPECT_EQ(refusal(with_task(R"({"type": "chief", "index": 0})")),
            R"(TF_CONFIG: task.type is "chief", but cluster has no such job (it has ps, worker), as in )"
            R"({"type": "ps", "index": 0})");
  EXPECT_EQ(refusal(with_task(R"({"type": "worker", "index": 3})")),
            R"(TF_CONFIG: task.index is 3, but cluster.worker has 3 tasks, 0 to 2, as in )"
            R"({"type": "worker", "index": 2})");
  EXPECT_TRUE(contains(refusal(R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 1}})"),
                       "cluster.ps has one task, 0"));
  EXPECT_EQ(
      refusal(R"({"cluster": {"ps": {"1": "a:1", "4": "b:1"}}, "task": {"type": "ps", "index": 2}})"),
      R"(TF_CONFIG: task.index is 2, but cluster.ps has the tasks 1, 4, as in {"type": "ps", "index": 4})");
  for (const char* index : {"-1", "\"-1\"", "1.5", "1.0", "\"one\"", "\"\"", "\" 1\"", "\"0x1\"", "true",
                            "[]", "{}", "99999999999999999999999", "4294967296", "\"4294967296\"", "1e2"}) {
    EXPECT_TRUE(contains(refusal(with_task(std::string(R"({"type": "ps", "index": )") + index + "}")),
                         "expected a whole number from 0 on, as in \"task\":"))
        << index;
  }
}

TEST(TfConfig, RefusesAMissingTaskTypeOrIndex) {
  EXPECT_EQ(refusal(std::string("{") + kPsAndWorkers + "}"),
            R"(TF_CONFIG: "task" is missing: say which task of the cluster this process is, as in )"
            R"("task": {"type": "worker", "index": 0})");
  EXPECT_TRUE(contains(refusal(with_task("null")), "\"task\" is missing"));
  EXPECT_TRUE(contains(refusal(with_task("{}")), "\"task\" is missing"));
  EXPECT_EQ(
      refusal(with_task(R"({"index": 0})")),
      R"(TF_CONFIG: task is {"index":0}, without "type": expected "task": {"type": "worker", "index": 0})");
  EXPECT_TRUE(contains(refusal(with_task(R"({"type": "ps"})")), R"(task is {"type":"ps"}, without "index")"));
  EXPECT_TRUE(contains(refusal(with_task(R"({"type": "ps", "id": 0})")), "without \"index\""));
}

TEST(TfConfig, RefusesWrongTypesAnywhere) {
  for (const char* text : {"[]", "3", "null", "\"{}\"", "true"}) {
    EXPECT_TRUE(contains(refusal(std::string(text)), "expected an object")) << text;
  }
  EXPECT_EQ(refusal(R"({"cluster": ["a:1"]})"),
            R"(TF_CONFIG: cluster is ["a:1"]: expected jobs with addresses, as in "cluster": {"worker": )"
            R"(["10.0.0.1:2222", "10.0.0.2:2222"]})");
  EXPECT_TRUE(contains(refusal(R"({"cluster": null})"), "cluster is null"));
  EXPECT_TRUE(
      contains(refusal(R"({"cluster": {"worker": "a:1"}})"), R"(cluster.worker is "a:1": expected a list)"));
  EXPECT_TRUE(contains(refusal(R"({"cluster": {"worker": null}})"), "cluster.worker is null"));
  EXPECT_TRUE(
      contains(refusal(R"({"cluster": {"worker": ["a:1", 2222]}})"), "cluster.worker[1] is 2222: expected"));
  EXPECT_TRUE(
      contains(refusal(R"({"cluster": {"worker": {"0": ["a:1"]}}})"), "cluster.worker[0] is [\"a:1\"]"));
  EXPECT_TRUE(
      contains(refusal(R"({"cluster": {"worker": {"x": "a:1"}}})"), R"(cluster.worker has the index "x")"));
  EXPECT_TRUE(contains(refusal(R"({"cluster": {"worker": {"-1": "a:1"}}})"), R"(has the index "-1")"));
  EXPECT_TRUE(
      contains(refusal(R"({"cluster": {"worker": {"0": "a:1", "00": "b:1"}}})"), "has the index 0 twice"));
  EXPECT_TRUE(contains(refusal(with_task("3")), "task is 3: expected an object"));
  EXPECT_TRUE(contains(refusal(with_task(R"({"type": 123456, "index": 0})")), "task.type is 123456"));
  EXPECT_TRUE(
      contains(refusal(with_task(R"({"type": "ps", "index": 0})", R"(, "rpc_layer": 1)")), "rpc_layer is 1"));
  EXPECT_TRUE(contains(refusal(with_task(R"({"type": "ps", "index": 0})", R"(, "rpc_layer": "http")")),
                       R"(rpc_layer is "http": expected "grpc")"));
  EXPECT_TRUE(contains(refusal(with_task(R"({"type": "ps", "index": 0})", R"(, "model_dir": ["a"])")),
                       "model_dir is"));
  EXPECT_TRUE(contains(refusal(with_task(R"({"type": "ps", "index": 0})", R"(, "model_dir": "a\u0000b")")),
                       R"(model_dir is "a\x00b": expected printable text)"));
  EXPECT_TRUE(contains(refusal(with_task(R"({"type": "ps", "index": 0})", R"(, "environment": {})")),
                       "environment is"));
}

TEST(TfConfig, RefusesAClusterThatFailsTheCheck) {
  const auto cluster = [](const std::string& jobs) {
    return refusal("{\"cluster\": " + jobs + R"(, "task": {"type": "worker", "index": 0}})");
  };
  EXPECT_EQ(cluster(R"({"worker": ["me@host:22"]})"),
            R"(TF_CONFIG: cluster.worker[0] is "me@host:22": drop "me@": write "host:22")");
  EXPECT_TRUE(contains(cluster(R"({"worker": ["grpc://a:1"]})"), R"(drop the scheme: write "a:1")"));
  EXPECT_TRUE(contains(cluster(R"({"worker": ["a:0"]})"), "the port is \"0\""));
  EXPECT_TRUE(contains(cluster(R"({"worker": ["a:65536"]})"), "the port is \"65536\""));
  EXPECT_TRUE(contains(cluster(R"({"worker": ["a"]})"), "the port is missing"));
  EXPECT_TRUE(contains(cluster(R"({"worker": ["a\u0007:1"]})"), R"("a\x07:1")"));
  EXPECT_TRUE(contains(cluster(R"({"worker": []})"), "cluster.worker has no tasks"));
  EXPECT_TRUE(contains(cluster(R"({"worker": ["a:1", "a:1"]})"),
                       "cluster.worker[1] is \"a:1\", which worker:0 has too"));
  EXPECT_TRUE(
      contains(cluster(R"({"chief": ["a:1", "b:1"], "worker": ["c:1"]})"), "cluster.chief has 2 tasks"));
  EXPECT_TRUE(
      contains(cluster(R"({"evaluator": ["a:1", "b:1"], "worker": ["c:1"]})"), "cluster.evaluator has 2"));
  EXPECT_TRUE(contains(cluster(R"({"workers": ["c:1"]})"), R"("workers" (did you mean "worker"?))"));
  EXPECT_TRUE(contains(cluster(R"({"wor\u200bker": ["c:1"]})"), R"("wor\xe2\x80\x8bker")"));
}

TEST(TfConfig, SaysWhereItIsNotJson) {
  EXPECT_EQ(
      refusal("{\"cluster\":\n  {worker: []}}"),
      R"(TF_CONFIG: not JSON at line 2, column 4, near "worker: []}}": expected {"cluster": {"worker": )"
      R"(["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_TRUE(contains(refusal("{'cluster': {}}"), "line 1, column 2, near \"'cluster': {\""));
  EXPECT_TRUE(contains(refusal("{\"cluster\": {}"), "near the end"));
  EXPECT_TRUE(contains(refusal("   "), "not JSON at line 1"));
  EXPECT_TRUE(contains(refusal("{} {}"), "line 1, column 4"));
  EXPECT_TRUE(contains(refusal("{\"a\": 1,}"), "not JSON"));
  EXPECT_TRUE(contains(refusal("{\"a\xff\": 1}"), "not JSON"));
  EXPECT_TRUE(contains(refusal(std::string("{\0}", 3)), "not JSON at line 1, column 2"));
  EXPECT_TRUE(contains(refusal(R"({"cluster": {}, "task": {"index": 1e999}})"), "too large"));
}

TEST(TfConfig, RefusesAKeyGivenTwice) {
  EXPECT_TRUE(contains(refusal(R"({"cluster": {}, "cluster": {}})"), R"(the key "cluster" is there twice)"));
  EXPECT_TRUE(
      contains(refusal(R"({"cluster": {"ps": ["a:1"], "ps": ["b:1"]}})"), R"(the key "ps" is there twice)"));
  EXPECT_TRUE(contains(refusal(R"({"x": {"y": {"a": 1, "a": 2}}})"), R"(the key "a" is there twice)"));
  accept(std::string(R"({"x": {"a": {"a": 1}}, "y": {"a": 1}})"));
}

TEST(TfConfig, RefusesWhatIsTooLongOrTooDeep) {
  const auto nested = [](int depth) {
    const auto n = static_cast<std::size_t>(depth) - 1;
    return "{\"x\": " + std::string(n, '[') + std::string(n, ']') + "}";
  };
  accept(nested(16));
  EXPECT_TRUE(contains(refusal(nested(17)), "nested more than 16 deep"));
  EXPECT_TRUE(contains(refusal(std::string(1 << 20, '[')), "nested more than 16 deep"));
  const std::string full = "{\"x\": \"" + std::string((1 << 20) - 9, 'a') + "\"}";
  ASSERT_EQ(full.size(), std::size_t{1} << 20);
  accept(full);
  EXPECT_TRUE(contains(refusal(full + " "), "1048577 bytes long: expected at most 1048576"));
}

TEST(TfConfig, HandlesThousandsOfTasks) {
  std::string workers;
  for (int i = 0; i < 10000; ++i) workers += "\"host" + std::to_string(i) + ".example.com:2222\",";
  workers.pop_back();
  const auto resolved =
      accept("{\"cluster\": {\"worker\": [" + workers + R"(]}, "task": {"type": "worker", "index": 9999}})");
  EXPECT_EQ(resolved.worker_count(), 10000);
}

TEST(MakeTfConfig, IsReadBackTheSame) {
  const auto first = accept(with_task(
      R"({"type": "worker", "index": 1})",
      R"(, "rpc_layer": "grpc", "environment": "cloud", "model_dir": "/m", "session_master": "a:1")"));
  const std::string text = internal::make_tf_config(first);
  EXPECT_EQ(
      text,
      R"({"cluster":{"ps":["ps0:2222","ps1:2222"],"worker":["worker0:2222","worker1:2222","worker2:2222"]},)"
      R"("task":{"type":"worker","index":1},"rpc_layer":"grpc","environment":"cloud","session_master":"a:1",)"
      R"("model_dir":"/m"})");
  EXPECT_EQ(internal::make_tf_config(accept(text)), text);
}

TEST(ClusterFile, HoldsTheSameJson) {
  const TempFolder folder;
  std::ofstream(folder.file("c.json")) << with_task(R"({"type": "ps", "index": 1})") << "\n";
  const auto resolved = accept(FileClusterResolver(folder.file("c.json")));
  EXPECT_EQ(resolved.task->name(), "ps:1");
  EXPECT_EQ(resolved.source, "cluster file \"" + folder.file("c.json") + "\"");
  EXPECT_EQ(accept(FileClusterResolver(folder.file("c.json"), {.task_type = "worker", .task_index = 0}))
                .task->name(),
            "worker:0");
  EXPECT_EQ(accept(FileClusterResolver({}, variables({{"TANDEM_CLUSTER_FILE", folder.file("c.json")}})))
                .task->name(),
            "ps:1");
  EXPECT_FALSE(FileClusterResolver({}, variables({})).resolve());
  std::ofstream(folder.file("bad.json")) << "{";
  EXPECT_TRUE(
      contains(refusal(FileClusterResolver(folder.file("bad.json"))), "bad.json\": not JSON at line 1"));
  std::ofstream(folder.file("big.json")) << std::string(3 << 20, ' ');
  EXPECT_TRUE(contains(refusal(FileClusterResolver(folder.file("big.json"))), "1048577 bytes long"));
}

TEST(ClusterFile, ThatCannotBeReadIsNotFound) {
  const TempFolder folder;
  const auto line = [](const std::string& path) {
    return message_of<NotFound>([&] { FileClusterResolver(path).resolve(); });
  };
  EXPECT_EQ(line(folder.file("none")),
            "cannot read cluster file \"" + folder.file("none") + "\": No such file or directory");
  EXPECT_TRUE(contains(line(folder.path()), "is a folder"));
}

}  // namespace
}  // namespace tandem
