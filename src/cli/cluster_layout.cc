#include "cli/cluster_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::vector<PlacedTask> tasks_of(const ClusterShape& shape) {
  std::vector<PlacedTask> tasks;
  const auto add = [&](const char* type, int count) {
    for (int i = 0; i < count; ++i) tasks.push_back({.type = type, .index = i});
  };
  add("chief", shape.chief ? 1 : 0);
  add("worker", shape.workers);
  add("ps", shape.ps);
  add("evaluator", shape.evaluator ? 1 : 0);
  return tasks;
}

// An IPv6 address needs brackets before its port.
std::string address_of(const std::string& host, int port) {
  const bool bare = host.find(':') != std::string::npos && !host.starts_with('[');
  return fmt::format(fmt::runtime(bare ? "[{}]:{}" : "{}:{}"), host, port);
}

// "name", "name:port", "::1", "[::1]:port"
HostPort parse_host(const std::string& text, int base_port) {
  const auto colon = text.rfind(':');
  const bool bare_ipv6 = std::count(text.begin(), text.end(), ':') > 1 && !text.starts_with('[');
  const bool has_port = colon != std::string::npos && !bare_ipv6 && !text.ends_with(']');
  return parse_address(has_port ? text : address_of(text, base_port), "--hosts");
}

}  // namespace

std::string PlacedTask::name() const {
  return fmt::format("{}:{}", type, index);
}

std::vector<PlacedTask> place_on_host(const ClusterShape& shape, const std::string& host,
                                      const std::vector<int>& ports) {
  auto tasks = tasks_of(shape);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].host = host;
    tasks[i].address = address_of(host, ports.at(i));
  }
  return tasks;
}

std::vector<PlacedTask> place_on_hosts(const ClusterShape& shape, const std::vector<std::string>& hosts,
                                       int base_port) {
  std::vector<HostPort> next;  // the port that each entry would give out
  for (const auto& host : hosts) next.push_back(parse_host(host, base_port));
  auto tasks = tasks_of(shape);
  std::set<std::string> taken;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    auto& [host, port] = next[i % next.size()];
    tasks[i].host = host;
    // A host that is listed twice gives out each port once.
    do {
      if (port > 65535) {
        throw InvalidArgument(fmt::format("--hosts: no port is left on {} for {}:{}: 65535 is the last", host,
                                          tasks[i].type, tasks[i].index));
      }
      tasks[i].address = address_of(host, port++);
    } while (!taken.insert(tasks[i].address).second);
  }
  return tasks;
}

std::string tf_config(const std::vector<PlacedTask>& tasks, const PlacedTask& task) {
  nlohmann::ordered_json config;
  for (const auto& each : tasks) config["cluster"][each.type].push_back(each.address);
  config["task"] = {{"type", task.type}, {"index", task.index}};
  return config.dump();
}

std::string shell_quoted(const std::string& text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:,+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace tandem::internal
