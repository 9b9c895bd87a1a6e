#include "cluster/tf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/json_limits.h"
#include "base/log.h"
#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr int kDeepest = 16;
constexpr const char* kClusterExample = R"("cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]})";
constexpr const char* kTaskExample = R"("task": {"type": "worker", "index": 0})";

// "line 2, column 7" of the byte where the parser stopped, counted from 1.
std::string position(const std::string& text, std::size_t byte) {
  const std::size_t at = std::min(byte > 0 ? byte - 1 : 0, text.size());
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
  const std::size_t newline = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return fmt::format("line {}, column {}", line, newline == std::string::npos ? at + 1 : at - newline);
}

Json parse(const std::string& text) {
  if (text.size() > kMostBytes) {
    throw InvalidArgument(fmt::format("{} bytes long: expected at most {}, such as {{{}, {}}}", text.size(),
                                      kMostBytes, kClusterExample, kTaskExample));
  }
  try {
    JsonLimits<Json> limits(kDeepest);
    return Json::parse(
        text, [&](int depth, Json::parse_event_t event, Json& value) { return limits(depth, event, value); });
  } catch (const JsonTooDeep&) {
    throw InvalidArgument(fmt::format("nested more than {} deep: expected {{{}, {}}}", kDeepest,
                                      kClusterExample, kTaskExample));
  } catch (const JsonKeyTwice& twice) {
    throw InvalidArgument(fmt::format("the key {} is there twice: give it once, as in {{{}, {}}}",
                                      quote(twice.key), kClusterExample, kTaskExample));
  } catch (const Json::parse_error& error) {
    const std::size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const std::string found = at < text.size() ? quote(std::string_view(text).substr(at, 12)) : "the end";
    throw InvalidArgument(fmt::format("not JSON at {}, near {}: expected {{{}, {}}}",
                                      position(text, error.byte), found, kClusterExample, kTaskExample));
  } catch (const Json::exception&) {  // a number that no type holds
    throw InvalidArgument(
        fmt::format("a number is too large: expected {{{}, {}}}", kClusterExample, kTaskExample));
  }
}

std::string show(const Json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, text.find_last_not_of("\x80\xbf", 57) + 1) + "..." : text;
}

InvalidArgument wrong_type(const std::string& key, const Json& value, const std::string& expected) {
  return InvalidArgument(fmt::format("{} is {}: expected {}", key, show(value), expected));
}

// "0" or 0; a task's index may come as either.
int read_index(const Json& value, const std::string& key) {
  std::optional<int> index;
  if (value.is_string()) index = parse_int(value.get_ref<const std::string&>());
  if (value.is_number_unsigned() || value.is_number_integer()) index = parse_int(value.dump());
  if (!index || *index < 0) {
    throw wrong_type(key, value, fmt::format("a whole number from 0 on, as in {}", kTaskExample));
  }
  return *index;
}

std::string read_address(const Json& value, const std::string& key) {
  if (!value.is_string()) throw wrong_type(key, value, "an address such as \"10.0.0.1:2222\"");
  return value.get<std::string>();
}

JobTasks read_job(const std::string& job, const Json& value) {
  const std::string key = fmt::format("cluster.{}", is_printable_name(job) ? job : quote(job));
  std::map<int, std::string> tasks;
  if (value.is_array()) {
    for (const auto& address : value) {
      const auto index = static_cast<int>(tasks.size());
      tasks.emplace(index, read_address(address, fmt::format("{}[{}]", key, index)));
    }
  } else if (value.is_object()) {
    for (const auto& [name, address] : value.items()) {
      const auto index = parse_int(name);
      if (!index || *index < 0) {
        throw InvalidArgument(
            fmt::format("{} has the index {}: expected a whole number from 0 on, as in "
                        "{{\"0\": \"10.0.0.1:2222\"}}",
                        key, quote(name)));
      }
      if (!tasks.emplace(*index, read_address(address, fmt::format("{}[{}]", key, *index))).second) {
        throw InvalidArgument(
            fmt::format("{} has the index {} twice: give it once, as in "
                        "{{\"0\": \"10.0.0.1:2222\", \"1\": \"10.0.0.2:2222\"}}",
                        key, *index));
      }
    }
  } else {
    throw wrong_type(key, value, "a list of addresses such as [\"10.0.0.1:2222\", \"10.0.0.2:2222\"]");
  }
  return tasks;
}

ClusterSpec read_cluster(const Json& value, const std::string& key) {
  if (!value.is_object())
    throw wrong_type(key, value, fmt::format("jobs with addresses, as in {}", kClusterExample));
  ClusterSpec::Jobs jobs;
  for (const auto& [job, tasks] : value.items()) jobs.emplace_back(job, read_job(job, tasks));
  return ClusterSpec(std::move(jobs));
}

// What Kubeflow's TFJob writes with enableDynamicWorker: a task sees no more than it needs. A worker sees
// itself, under its index, and every ps; a ps sees itself alone, in a list of one whatever its index is, and
// an empty or null job where it sees none.
ClusterSpec read_sparse_cluster(const Json& value, const std::string& key,
                                const std::optional<TaskId>& task) {
  if (!value.is_object()) return read_cluster(value, key);
  Json jobs = Json::object();
  for (const auto& [job, tasks] : value.items()) {
    if (tasks.empty()) continue;  // null is empty too
    const bool own_list_of_one = task && task->type == job && tasks.is_array() && tasks.size() == 1;
    if (own_list_of_one) {
      jobs[job] = Json::object({{std::to_string(task->index), tasks.front()}});
    } else {
      jobs[job] = tasks;
    }
  }
  return read_cluster(jobs, key);
}

// Reads "task"; of its other keys only those that look like a slip are refused, since platforms add their
// own.
std::optional<TaskId> read_task(const Json& value, const TaskOverrides& overrides) {
  if (!value.is_object()) throw wrong_type("task", value, fmt::format("an object, as in {}", kTaskExample));
  for (const auto& [key, ignored] : value.items()) {
    if (key == "type" || key == "index") continue;
    const auto meant = closest(key, {"type", "index"});
    if (meant && !value.contains(*meant)) {
      throw InvalidArgument(fmt::format("task has the key {} (did you mean {}?): expected {}", quote(key),
                                        quote(*meant), kTaskExample));
    }
  }
  const auto missing = [&](const char* key) {
    return InvalidArgument(
        fmt::format("task is {}, without \"{}\": expected {}", show(value), key, kTaskExample));
  };
  const bool has_type = value.contains("type") && !value["type"].is_null();
  const bool has_index = value.contains("index") && !value["index"].is_null();
  if (!has_type && !has_index && overrides.task_type.empty() && !overrides.task_index && value.empty()) {
    return std::nullopt;
  }
  TaskId task;
  if (!overrides.task_type.empty()) {
    task.type = overrides.task_type;
  } else if (!has_type) {
    throw missing("type");
  } else if (!value["type"].is_string()) {
    throw wrong_type("task.type", value["type"], fmt::format("a job's name, as in {}", kTaskExample));
  } else {
    task.type = value["type"].get<std::string>();
  }
  if (overrides.task_index) {
    task.index = *overrides.task_index;
  } else if (!has_index) {
    throw missing("index");
  } else {
    task.index = read_index(value["index"], "task.index");
  }
  return task;
}

std::string read_text(const Json& root, const char* key, const char* example) {
  const auto found = root.find(key);
  if (found == root.end() || found->is_null()) return {};
  if (!found->is_string() || !is_printable_text(found->get_ref<const std::string&>())) {
    throw wrong_type(key, *found, fmt::format("printable text, as in \"{}\": \"{}\"", key, example));
  }
  return found->get<std::string>();
}

// Returns the key that holds the cluster, if there is one. Ignores keys it does not know, but says so.
std::optional<std::string> look_over_keys(const Json& root, const std::string& source) {
  std::optional<std::string> cluster_key;
  std::vector<std::string> ignored;
  for (const auto& [key, value] : root.items()) {
    if (key == "cluster" || key == "sparseCluster" || key == "sparse_cluster") {
      if (cluster_key) {
        throw InvalidArgument(fmt::format("{} and {} are both there: expected one of them, as in {}",
                                          quote(*cluster_key), quote(key), kClusterExample));
      }
      cluster_key = key;
      continue;
    }
    static const std::set<std::string> kKnown = {"task", "rpc_layer", "environment", "session_master",
                                                 "model_dir"};
    if (kKnown.contains(key)) continue;
    if (const auto meant = closest(key, {"cluster", "task", "sparseCluster", "sparse_cluster"})) {
      throw InvalidArgument(fmt::format("unknown key {} (did you mean {}?): expected {{{}, {}}}", quote(key),
                                        quote(*meant), kClusterExample, kTaskExample));
    }
    ignored.push_back(quote(key));
  }
  if (!ignored.empty()) {
    const auto more = ignored.size() > 8 ? fmt::format(" and {} more", ignored.size() - 8) : "";
    ignored.resize(std::min<std::size_t>(ignored.size(), 8));
    log_info("{}: ignored what tandem does not know: {}{}", source, fmt::join(ignored, ", "), more);
  }
  return cluster_key;
}

ResolvedCluster read(const std::string& text, const std::string& source, const TaskOverrides& overrides) {
  const Json root = parse(text);
  if (!root.is_object()) {
    throw InvalidArgument(
        fmt::format("it is {}: expected an object, {{{}, {}}}", show(root), kClusterExample, kTaskExample));
  }
  const auto cluster_key = look_over_keys(root, source);

  ResolvedCluster resolved;
  resolved.source = source;
  resolved.task =
      read_task(root.contains("task") && !root["task"].is_null() ? root["task"] : Json::object(), overrides);
  if (cluster_key) {
    const Json& cluster = root[*cluster_key];
    resolved.cluster = *cluster_key == "cluster" ? read_cluster(cluster, *cluster_key)
                                                 : read_sparse_cluster(cluster, *cluster_key, resolved.task);
  }
  resolved.rpc_layer =
      overrides.rpc_layer.empty() ? read_text(root, "rpc_layer", "grpc") : overrides.rpc_layer;
  if (!resolved.rpc_layer.empty() && resolved.rpc_layer != "grpc") {
    throw InvalidArgument(
        fmt::format("rpc_layer is {}: expected \"grpc\" or nothing, as in \"rpc_layer\": \"grpc\"",
                    quote(resolved.rpc_layer)));
  }
  resolved.environment = read_text(root, "environment", "cloud");
  resolved.session_master = read_text(root, "session_master", "grpc://10.0.0.1:2222");
  resolved.model_dir = read_text(root, "model_dir", "/tmp/model");
  if (!resolved.cluster.empty() && !resolved.task && !overrides.task_may_be_missing) {
    throw InvalidArgument(fmt::format(
        "\"task\" is missing: say which task of the cluster this process is, as in {}", kTaskExample));
  }
  resolved.check();
  if (resolved.cluster.empty()) resolved.task.reset();
  return resolved;
}

}  // namespace

ResolvedCluster read_tf_config(const std::string& text, const std::string& source,
                               const TaskOverrides& overrides) {
  try {
    return read(text, source, overrides);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", source, error.what()));
  }
}

std::string make_tf_config(const ResolvedCluster& resolved) {
  auto root = Json::object();
  if (!resolved.cluster.empty()) root["cluster"] = Json::parse(resolved.cluster.to_json());
  if (resolved.task) root["task"] = {{"type", resolved.task->type}, {"index", resolved.task->index}};
  for (const auto& [key, value] :
       {std::pair<const char*, const std::string&>{"rpc_layer", resolved.rpc_layer},
        {"environment", resolved.environment},
        {"session_master", resolved.session_master},
        {"model_dir", resolved.model_dir}}) {
    if (!value.empty()) root[key] = value;
  }
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem::internal
