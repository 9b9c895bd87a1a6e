// TensorFlow's own answers, case by case.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/oracle.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using testing_support::message_of;
using testing_support::read_oracle;

ClusterSpec spec_of(const Json& in) {
  ClusterSpec::Jobs jobs;
  for (const auto& [job, tasks] : in.items()) {
    if (tasks.is_array()) {
      jobs.emplace_back(job, JobTasks(tasks.get<std::vector<std::string>>()));
      continue;
    }
    std::map<int, std::string> sparse;
    for (const auto& [index, address] : tasks.items()) sparse[std::stoi(index)] = address;
    jobs.emplace_back(job, JobTasks(sparse));
  }
  return ClusterSpec(jobs);
}

TEST(ClusterSpecOracle, EveryMethodAnswersAsTensorFlowsDoes) {
  std::ifstream file(std::string(TANDEM_TEST_FILES) + "/oracles/cluster_spec.json");
  const Json cases = Json::parse(file);  // in the file's order, which jobs() keeps
  ASSERT_GE(cases.size(), 20u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["in"].dump());
    const ClusterSpec cluster = spec_of(one["in"]);
    EXPECT_EQ(cluster.jobs(), one["jobs"].get<std::vector<std::string>>());
    EXPECT_EQ(Json::parse(cluster.to_json()), one["as_dict"]);
    EXPECT_EQ(spec_of(one["as_dict"]), cluster);
    for (const auto& job : cluster.jobs()) {
      EXPECT_EQ(cluster.num_tasks(job), one["num_tasks"][job].get<int>());
      EXPECT_EQ(cluster.task_indices(job), one["task_indices"][job].get<std::vector<int>>());
      const auto tasks = cluster.job_tasks(job);
      ASSERT_EQ(tasks.size(), one["job_tasks"][job].size());
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        const auto& expected = one["job_tasks"][job][i];
        ASSERT_EQ(tasks[i].has_value(), expected.is_string());
        if (!tasks[i]) continue;
        EXPECT_EQ(*tasks[i], expected.get<std::string>());
        EXPECT_EQ(cluster.task_address(job, static_cast<int>(i)), *tasks[i]);
      }
    }
  }
}

// Which cases tandem must refuse, though TensorFlow answers some of the questions about them.
bool is_refused(const nlohmann::json& config) {
  if (!config.contains("task")) return true;
  const std::string type = config["task"]["type"];
  const auto& index_value = config["task"]["index"];
  const int index =
      index_value.is_string() ? std::stoi(index_value.get<std::string>()) : index_value.get<int>();
  const auto& cluster = config["cluster"];
  if (!cluster.contains(type)) return type != "evaluator" || index != 0;
  const auto& tasks = cluster[type];
  return tasks.is_array() ? index >= static_cast<int>(tasks.size()) : !tasks.contains(std::to_string(index));
}

template <typename Value>
void expect_answer(const nlohmann::json& answer, const std::optional<Value>& value) {
  if (answer.contains("error")) {
    EXPECT_FALSE(value.has_value());
  } else {
    ASSERT_TRUE(value.has_value());
    EXPECT_EQ(answer["ok"].get<Value>(), *value);
  }
}

TEST(TfConfigOracle, EveryCaseIsAnsweredOrRefused) {
  int refused = 0;
  int answered = 0;
  for (const auto& one : read_oracle("tf_config")) {
    const std::string text = one["TF_CONFIG"];
    SCOPED_TRACE(text);
    const TFConfigClusterResolver resolver(text);
    if (is_refused(nlohmann::json::parse(text))) {
      ++refused;
      const auto line = message_of<InvalidArgument>([&] { resolver.resolve(); });
      EXPECT_EQ(line.find("TF_CONFIG: "), 0u);
      EXPECT_EQ(line.find('\n'), std::string::npos);
      continue;
    }
    ++answered;
    const auto resolved = resolver.resolve();
    ASSERT_TRUE(resolved && resolved->task);
    EXPECT_EQ(nlohmann::json::parse(resolved->cluster.to_json()), one["cluster"]["ok"]);
    EXPECT_EQ(resolved->task->type, one["task_type"]["ok"].get<std::string>());
    EXPECT_EQ(resolved->task->index, one["task_id"]["ok"].get<int>());
    EXPECT_EQ(resolved->rpc_layer,
              one["rpc_layer"]["ok"].is_null() ? "" : one["rpc_layer"]["ok"].get<std::string>());
    EXPECT_EQ(resolved->is_chief(), one["is_chief"]["ok"].get<bool>());
    expect_answer<std::string>(one["master"], resolved->master());
    expect_answer<int>(one["worker_count"], resolved->worker_count());
    expect_answer<int>(one["id_in_cluster"], resolved->id_in_cluster());
  }
  EXPECT_GT(answered, 80);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace tandem
