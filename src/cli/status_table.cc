#include "cli/status_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/text_table.h"
#include "cli/task_names.h"

namespace tandem::internal {
namespace {

using Row = std::vector<std::string>;

TaskId task_of(const rpc::Task& task) {
  return {printable(task.type()), task.index()};
}

std::string last_heard(const rpc::TaskStatus& status, bool teller) {
  if (teller) return "tells this";
  if (status.silence_ms() < 0) {
    return status.note().empty() ? "never" : fmt::format("never: {}", printable(status.note()));
  }
  const double seconds = static_cast<double>(status.silence_ms()) / 1000;
  if (seconds < 10) return fmt::format("{:.1f} s ago", seconds);
  return seconds < 600 ? fmt::format("{:.0f} s ago", seconds) : fmt::format("{:.0f} min ago", seconds / 60);
}

Row row_of(const ClusterSpec& cluster, const rpc::TaskStatus& status, const TaskId& teller) {
  const TaskId task = task_of(status.task());
  Row row{name_in(cluster, task),
          printable(status.address()),
          printable(status.state()),
          "-",
          "-",
          "-",
          last_heard(status, task == teller)};
  if (status.silence_ms() >= 0 || task == teller) {
    row[3] = std::to_string(status.generation());
    row[4] = std::to_string(status.step());
    row[5] = fmt::format("{:.1f}", status.examples_per_second());
  }
  return row;
}

}  // namespace

std::string printable(std::string text) {
  constexpr std::size_t kLongest = 300;
  if (text.size() > kLongest) text.resize(kLongest);
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

std::string text_table(const ClusterSpec& cluster, const rpc::Table& table) {
  const TaskId teller = task_of(table.teller());
  std::vector<Row> rows{{"TASK", "ADDRESS", "STATE", "GENERATION", "STEP", "EXAMPLES/S", "LAST HEARD"}};
  for (const auto& status : table.tasks()) rows.push_back(row_of(cluster, status, teller));
  return align_columns(rows, {false, false, false, true, true, true, false});
}

std::string json_table(const ClusterSpec& cluster, const rpc::Table& table) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["cluster"] = cluster.id();
  json["teller"] = task_of(table.teller()).name();
  json["wall_clock_ms"] = table.wall_clock_ms();
  json["tasks"] = Json::array();
  for (const auto& status : table.tasks()) {
    const TaskId task = task_of(status.task());
    json["tasks"].push_back({{"task", task.name()},
                             {"chief", is_chief(cluster, task)},
                             {"address", status.address()},
                             {"state", status.state()},
                             {"generation", status.generation()},
                             {"step", status.step()},
                             {"examples_per_second", status.examples_per_second()},
                             {"silence_ms", status.silence_ms() < 0 ? Json() : Json(status.silence_ms())},
                             {"note", status.note()}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool tells_the_end(const rpc::Table& table) {
  const TaskId teller = task_of(table.teller());
  return std::ranges::any_of(table.tasks(), [&](const rpc::TaskStatus& status) {
    const std::string& state = status.state();
    return task_of(status.task()) == teller && (state == "done" || state == "left" || state == "stopped");
  });
}

std::string states_in_short(const rpc::Table& table) {
  static const std::set<std::string> kUnremarkable = {"missing", "joining", "ready",
                                                      "running", "done",    "stopped"};
  std::vector<std::string> parts;
  std::map<std::string, int> counts;
  for (const auto& status : table.tasks()) {
    if (kUnremarkable.contains(status.state())) {
      ++counts[status.state()];
    } else {
      parts.push_back(fmt::format("{} {}", task_of(status.task()).name(), printable(status.state())));
    }
  }
  for (const auto& [state, count] : counts) parts.push_back(fmt::format("{} {}", count, state));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace tandem::internal
