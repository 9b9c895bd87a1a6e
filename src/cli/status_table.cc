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

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;
constexpr std::size_t kMostBuckets = 64;

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

// What the task said is JSON, or nothing of use.
Json detail(const PsTold& told, const std::string& key) {
  const auto found = told.details.find(key);
  if (found == told.details.end()) return {};
  return Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
}

std::string count_of(const Json& value) {
  return value.is_number_unsigned() ? std::to_string(value.get<std::uint64_t>()) : "-";
}

// "0: 60 %, 1: 38 %, 15+: 2 %": how many updates of others came between a worker's pull and its push.
std::string histogram_of(const Json& buckets) {
  if (!buckets.is_array() || buckets.size() > kMostBuckets) return "-";
  double all = 0;
  for (const Json& bucket : buckets) {
    if (!bucket.is_number_unsigned()) return "-";
    all += bucket.get<double>();
  }
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i] == 0) continue;
    parts.push_back(fmt::format("{}{}: {:.0f} %", i, i + 1 == buckets.size() ? "+" : "",
                                100 * buckets[i].get<double>() / all));
  }
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, ", "));
}

Row row_of(const TaskId& task, const PsTold& told) {
  const auto last = [&]() -> std::string {
    if (!told.failure.empty()) return "no answer: " + printable(told.failure);
    if (told.details.empty()) return "it says nothing of itself";
    if (detail(told, "ready") != true) return "waits for the chief";
    return histogram_of(detail(told, "staleness"));
  };
  const Json bytes = detail(told, "bytes");
  const Json rate = detail(told, "pushes_per_second");
  return {printable(task.name()),
          count_of(detail(told, "shards")),
          bytes.is_number() ? fmt::format("{:.1f}", bytes.get<double>() / 1e6) : "-",
          count_of(detail(told, "workers")),
          rate.is_number() ? fmt::format("{:.1f}", rate.get<double>()) : "-",
          count_of(detail(told, "global_step")),
          last()};
}

}  // namespace

std::string printable(std::string text) {
  constexpr std::size_t kLongest = 300;
  if (text.size() > kLongest) text.resize(kLongest);
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

std::string text_table(const ClusterSpec& cluster, const rpc::Table& table, const PsTable& ps) {
  const TaskId teller = task_of(table.teller());
  std::vector<Row> rows{{"TASK", "ADDRESS", "STATE", "GENERATION", "STEP", "EXAMPLES/S", "LAST HEARD"}};
  for (const auto& status : table.tasks()) rows.push_back(row_of(cluster, status, teller));
  std::string text = align_columns(rows, {false, false, false, true, true, true, false});
  if (ps.empty()) return text;
  rows = {{"PS", "SHARDS", "MB", "WORKERS", "PUSHES/S", "GLOBAL STEP", "STALENESS"}};
  for (const auto& [task, told] : ps) rows.push_back(row_of(task, told));
  return text + "\n" + align_columns(rows, {false, true, true, true, true, true, false});
}

std::string json_table(const ClusterSpec& cluster, const rpc::Table& table, const PsTable& ps) {
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
  for (const auto& [task, told] : ps) {
    Json& entry = json["ps"].emplace_back(Json{{"task", task.name()}});
    if (!told.failure.empty()) entry["failure"] = told.failure;
    for (const auto& [key, value] : told.details) {
      const Json parsed = detail(told, key);
      entry[key] = parsed.is_discarded() ? Json(value) : parsed;
    }
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
