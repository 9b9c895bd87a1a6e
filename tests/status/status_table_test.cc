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
