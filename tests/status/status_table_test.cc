#include "cli/status_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace tandem::internal {
namespace {

rpc::TaskStatus& add(rpc::Table& table, const std::string& type, int index, const std::string& state) {
  rpc::TaskStatus& status = *table.add_tasks();
  status.mutable_task()->set_type(type);
  status.mutable_task()->set_index(index);
  status.set_state(state);
  status.set_silence_ms(-1);
  return status;
}

rpc::Table told_by(const std::string& type, int index) {
  rpc::Table table;
  table.mutable_teller()->set_type(type);
  table.mutable_teller()->set_index(index);
  return table;
}

TEST(StatusTable, AlignsItsColumns) {
  const ClusterSpec cluster({{"chief", {"训练机:1"}}, {"worker", {"b:1"}}, {"ps", {"p:1"}}});
  rpc::Table table = told_by("chief", 0);
  auto& chief = add(table, "chief", 0, "running");
  chief.set_address("训练机:1");
  chief.set_generation(1);
  chief.set_step(1200);
  chief.set_examples_per_second(850.25);
  auto& worker = add(table, "worker", 0, "silent");
  worker.set_address("b:1");
  worker.set_silence_ms(754'000);
  worker.set_step(7);
  auto& ps = add(table, "ps", 0, "missing");
  ps.set_address("p:1");
  ps.set_note("Connection refused");
  EXPECT_EQ(text_table(cluster, table),
            "TASK             ADDRESS  STATE    GENERATION  STEP  EXAMPLES/S  LAST HEARD\n"
            "chief:0 (chief)  训练机:1    running           1  1200       850.2  tells this\n"
            "worker:0         b:1      silent            0     7         0.0  13 min ago\n"
            "ps:0             p:1      missing           -     -           -  never: Connection refused\n");
}

// A stranger at a task's address may send anything.
TEST(StatusTable, ShowsNothingThatATerminalObeys) {
  const ClusterSpec cluster({{"worker", {"a:1"}}});
  rpc::Table table = told_by("wor\nker", 0);
  auto& status = add(table, "\x1b[2Jworker", std::numeric_limits<int>::min(), "run\rning\x7f");
  status.set_address(std::string(100'000, 'x'));
  status.set_note("\x1b]0;title\x07");
  const std::string text = text_table(cluster, table);
  EXPECT_EQ(text.find_first_of("\x1b\r\x07\x7f"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  EXPECT_LT(text.size(), 2000u);
  status.set_examples_per_second(std::numeric_limits<double>::quiet_NaN());
  const auto json = nlohmann::json::parse(json_table(cluster, table));
  EXPECT_EQ(json["tasks"][0]["examples_per_second"], nullptr);
  EXPECT_TRUE(text_table(cluster, {}).starts_with("TASK"));
}

TEST(StatusTable, ShowsWhatThePsTasksSayOfThemselves) {
  const ClusterSpec cluster({{"worker", {"b:1"}}, {"ps", {"p:1", "p:2", "p:3", "p:4"}}});
  const PsTable ps{
      {{"ps", 0},
       {.details = {{"ready", "true"},
                    {"shards", "12"},
                    {"bytes", "104857600"},
                    {"workers", "3"},
                    {"pushes_per_second", "41.25"},
                    {"global_step", "1200"},
                    {"staleness", "[60,38,0,2]"}}}},
      {{"ps", 1}, {.failure = "Connection\nrefused"}},
      {{"ps", 2}, {.details = {{"ready", "false"}}}},
      {{"ps", 3},
       {.details = {{"ready", "true"}, {"shards", "-1"}, {"bytes", "\x1b[2J"}, {"staleness", "[[[[1"}}}}};
  const std::string text = text_table(cluster, told_by("worker", 0), ps);
  EXPECT_EQ(text.substr(text.find("\n\n") + 2),
            "PS    SHARDS     MB  WORKERS  PUSHES/S  GLOBAL STEP  STALENESS\n"
            "ps:0      12  104.9        3      41.2         1200  0: 60 %, 1: 38 %, 3+: 2 %\n"
            "ps:1       -      -        -         -            -  no answer: Connection?refused\n"
            "ps:2       -      -        -         -            -  waits for the chief\n"
            "ps:3       -      -        -         -            -  -\n");
  const auto json = nlohmann::json::parse(json_table(cluster, told_by("worker", 0), ps));
  EXPECT_EQ(json["ps"].size(), 4u);
  EXPECT_EQ(json["ps"][0]["task"], "ps:0");
  EXPECT_EQ(json["ps"][0]["bytes"], 104857600);
  EXPECT_EQ(json["ps"][0]["staleness"], nlohmann::json::parse("[60,38,0,2]"));
  EXPECT_EQ(json["ps"][1]["failure"], "Connection\nrefused");
  EXPECT_FALSE(nlohmann::json::parse(json_table(cluster, told_by("worker", 0))).contains("ps"));
}

TEST(StatusTable, KnowsTheEnd) {
  rpc::Table table = told_by("worker", 0);
  EXPECT_FALSE(tells_the_end(table));
  auto& teller = add(table, "worker", 0, "running");
  add(table, "worker", 1, "done");
  EXPECT_FALSE(tells_the_end(table));
  for (const char* state : {"done", "stopped", "left"}) {
    teller.set_state(state);
    EXPECT_TRUE(tells_the_end(table)) << state;
  }
}

TEST(StatusTable, CountsStatesAndNamesTheLost) {
  rpc::Table table = told_by("worker", 0);
  add(table, "worker", 0, "stopped");
  add(table, "worker", 1, "dead");
  add(table, "worker", 2, "stopped");
  EXPECT_EQ(states_in_short(table), "worker:1 dead, 2 stopped");
}

}  // namespace
}  // namespace tandem::internal
