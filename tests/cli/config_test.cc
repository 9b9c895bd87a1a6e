#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/oracle.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::ProcessResult;
using testing_support::read_oracle;
using testing_support::run_process;
using testing_support::TempFolder;

const char* const kTfConfig =
    R"({"cluster": {"worker": ["a:1", "b:1"], "ps": ["p:1"]}, "task": {"type": "worker", "index": 1}})";

// Runs `tandem config ...` without the variables that would say something of their own.
ProcessResult config(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"/usr/bin/env", "-u", "TF_CONFIG", "-u", "TANDEM_CLUSTER_FILE",
                                       std::string(TANDEM_BIN) + "/tandem", "config"});
  return run_process(arguments);
}

ProcessResult config_in(const std::string& variable, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"/usr/bin/env", variable, std::string(TANDEM_BIN) + "/tandem", "config"});
  return run_process(arguments);
}

std::string output(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

// The one line on standard error, with exit code 2 and nothing on standard output.
std::string refusal(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.err.find("tandem: "), 0u) << result.err;
  return result.err;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ConfigCheck, SaysOkInOneLine) {
  const std::string line = output(config({"check", "--tf_config", kTfConfig}));
  EXPECT_EQ(line.find("ok: worker:1 of 2 worker + 1 ps, cluster "), 0u) << line;
  EXPECT_TRUE(has(line, ", from --tf_config\n")) << line;
  EXPECT_EQ(output(config({"check"})), "ok: no cluster: this process trains alone\n");
}

TEST(ConfigCheck, ReadsTheVariableAndAFile) {
  EXPECT_TRUE(has(output(config_in(std::string("TF_CONFIG=") + kTfConfig, {"check"})), "from TF_CONFIG"));
  const TempFolder folder;
  std::ofstream(folder.file("c.json")) << kTfConfig;
  EXPECT_TRUE(has(output(config({"check", "--cluster-file", folder.file("c.json")})), "c.json"));
  EXPECT_TRUE(has(output(config_in("TANDEM_CLUSTER_FILE=" + folder.file("c.json"), {"check"})), "c.json"));
}

TEST(ConfigCheck, RefusesInOneLineWithExitCode2) {
  EXPECT_TRUE(has(refusal(config({"check", "--tf_config", "{"})), "not JSON at line 1, column 2"));
  EXPECT_TRUE(has(refusal(config({"check", "--tf_config", ""})), "not JSON"));
  EXPECT_TRUE(has(refusal(config_in("TF_CONFIG={\"clusters\": 1}", {"check"})), "did you mean \"cluster\"?"));
  EXPECT_TRUE(has(refusal(config({"check", "--cluster_file", "/nonexistent/c.json"})), "No such file"));
  EXPECT_TRUE(
      has(refusal(config({"check", "--cluster_file", "x", "--tf_config", "{}"})), "expected one of them"));
  EXPECT_TRUE(has(refusal(config({"check", "--no_such_flag"})), "no_such_flag"));
  EXPECT_TRUE(has(refusal(config({})), "subcommand"));
}

TEST(ConfigShow, DrawsTheCluster) {
  const std::string picture = output(config({"show", "--tf_config", kTfConfig}));
  EXPECT_EQ(picture.substr(picture.find('\n') + 1),
            "├─ worker\n"
            "│  ├─ 0  a:1  [chief]\n"
            "│  └─ 1  b:1  <- this task\n"
            "└─ ps\n"
            "   └─ 0  p:1\n");
  EXPECT_TRUE(has(picture, " of 3 tasks, from --tf_config\n"));
  EXPECT_EQ(output(config({"show", "--graph", "text", "--tf_config", kTfConfig})), picture);
  EXPECT_EQ(output(config({"show", "--tf_config", kTfConfig, "--graph"})), picture);
  EXPECT_TRUE(
      has(output(config({"show", "--tf_config",
                         R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})"})),
          "└─ evaluator:0, outside the cluster  <- this task\n"));
  EXPECT_EQ(output(config({"show"})), "no cluster: this process trains alone\n");
}

TEST(ConfigShow, DrawsAGraphForDot) {
  const std::string with_ps = output(config({"show", "--graph", "dot", "--tf_config", kTfConfig}));
  EXPECT_EQ(with_ps.find("graph tandem {\n"), 0u);
  EXPECT_TRUE(has(with_ps, "\"worker:1\" [label=\"worker:1\\nb:1\", style=filled, fillcolor=lightgrey];\n"));
  EXPECT_TRUE(has(with_ps, "\"worker:0\" [label=\"worker:0\\na:1\", peripheries=2];\n"));
  EXPECT_TRUE(has(with_ps, "  \"worker:0\" -- \"ps:0\";\n  \"worker:1\" -- \"ps:0\";\n}\n"));
  const std::string ring = output(
      config({"show", "--graph", "dot", "--tf_config",
              R"({"cluster": {"worker": ["a:1", "b:1", "c:1"]}, "task": {"type": "worker", "index": 0}})"}));
  EXPECT_TRUE(has(ring, "\"worker:2\" -- \"worker:0\""));
  EXPECT_TRUE(
      has(refusal(config({"show", "--graph", "png", "--tf_config", kTfConfig})), "expected text or dot"));
}

// Every case of the oracle through the real program; what it must refuse, it refuses in one line.
TEST(ConfigShow, AnswersAsTensorFlowDoes) {
  const std::vector<std::string> keys = {"cluster", "task_type", "task_id",      "rpc_layer",
                                         "master",  "is_chief",  "worker_count", "id_in_cluster"};
  int answered = 0;
  for (const auto& one : read_oracle("tf_config")) {
    const std::string text = one["TF_CONFIG"];
    SCOPED_TRACE(text);
    const ProcessResult result = config({"show", "--json", "--tf_config", text});
    if (result.exit_code != 0) {
      refusal(result);
      // What TensorFlow cannot say of a ps, or of an evaluator outside the cluster, is no reason to refuse.
      const bool other_error =
          one["master"].contains("error") || !one.contains("is_chief") || one["is_chief"].contains("error");
      EXPECT_TRUE(other_error);
      continue;
    }
    ++answered;
    const auto answers = nlohmann::json::parse(result.out);
    EXPECT_EQ(answers.size(), keys.size());
    for (const auto& key : keys) {
      EXPECT_EQ(answers.at(key), one[key].contains("error") ? nlohmann::json() : one[key]["ok"]) << key;
    }
  }
  EXPECT_GT(answered, 80);
}

TEST(ConfigShow, PrintsJsonWithoutACluster) {
  EXPECT_EQ(output(config({"show", "--json", "--tf_config", "{}"})),
            R"({"cluster":{},"task_type":null,"task_id":null,"rpc_layer":null,"master":"","is_chief":true,)"
            R"("worker_count":1,"id_in_cluster":0})"
            "\n");
}

TEST(ConfigMake, PrintsOneTasksTfConfig) {
  const std::string text = output(config({"make", "--workers", "训练机:1,b:1", "--ps", "p:1", "--chief",
                                          "c:1", "--evaluator", "e:1", "--task", "worker:1"}));
  EXPECT_EQ(text,
            R"({"cluster":{"chief":["c:1"],"worker":["训练机:1","b:1"],"ps":["p:1"],"evaluator":["e:1"]},)"
            R"("task":{"type":"worker","index":1}})"
            "\n");
  EXPECT_EQ(config({"check", "--tf_config", text}).exit_code, 0);
}

TEST(ConfigMake, PrintsALineForEachTask) {
  EXPECT_EQ(
      output(config({"make", "--workers", "a:1,b:1", "--ps", "p:1"})),
      R"(worker:0: TF_CONFIG='{"cluster":{"worker":["a:1","b:1"],"ps":["p:1"]},)"
      R"("task":{"type":"worker","index":0}}')"
      "\n"
      R"(worker:1: TF_CONFIG='{"cluster":{"worker":["a:1","b:1"],"ps":["p:1"]},)"
      R"("task":{"type":"worker","index":1}}')"
      "\n"
      R"(ps:0: TF_CONFIG='{"cluster":{"worker":["a:1","b:1"],"ps":["p:1"]},"task":{"type":"ps","index":0}}')"
      "\n");
}

TEST(ConfigMake, WritesAFileThatCheckReads) {
  const TempFolder folder;
  const std::string file = folder.file("output.json");
  EXPECT_EQ(output(config({"make", "--workers", "主机:1,b:1", "--task", "worker:0", "--output", file})), "");
  EXPECT_TRUE(has(read(file), "主机:1"));
  EXPECT_EQ(config({"check", "--cluster_file", file}).exit_code, 0);
  EXPECT_TRUE(
      has(refusal(config({"make", "--workers", "a:1", "--output", folder.file("no/such")})), "no/such"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(ConfigMake, NamesTheWrongFlag) {
  EXPECT_TRUE(has(refusal(config({"make"})), "give --workers"));
  EXPECT_TRUE(has(refusal(config({"make", "--ps", "p:1"})), "give --workers"));
  EXPECT_TRUE(has(refusal(config({"make", "--workers", "a:1,b"})),
                  "--workers, entry 1, is \"b\": the port is missing"));
  EXPECT_TRUE(has(refusal(config({"make", "--chief", "a:0"})), "--chief is \"a:0\": the port"));
  EXPECT_TRUE(
      has(refusal(config({"make", "--workers", "a:1", "--chief", "b:1,c:1"})), "cluster.chief has 2 tasks"));
  EXPECT_TRUE(has(refusal(config({"make", "--workers", "a:1", "--ps", "a:1"})), "which worker:0 has too"));
  EXPECT_TRUE(has(refusal(config({"make", "--workers", "a:1", "--task", "worker"})), "such as worker:1"));
  EXPECT_TRUE(
      has(refusal(config({"make", "--workers", "a:1", "--task", "work:0"})), "did you mean \"worker\"?"));
  EXPECT_TRUE(has(refusal(config({"make", "--workers", "a:1", "--task", "worker:1"})), "task.index is 1"));
}

}  // namespace
}  // namespace tandem
