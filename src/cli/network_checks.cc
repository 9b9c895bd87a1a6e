#include "cli/network_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <thread>

#include "cli/status_table.h"
#include "rpc/observer.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using std::chrono::milliseconds;
using Level = Finding::Level;

// On a few threads: nearly all of the time is spent waiting for other machines. `work` must not throw.
void for_each_at_once(std::size_t count, const std::function<void(std::size_t)>& work) {
  constexpr std::size_t kThreads = 32;
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < std::min(count, kThreads); ++i) {
    threads.emplace_back([&] {
      for (std::size_t item = next++; item < count; item = next++) work(item);
    });
  }
}

// What a task answers to an observer.
struct Answer {
  std::string failure = {};
  bool refused = false;
  std::string state = {};
  std::optional<milliseconds> clock_ahead = {};
};

Answer ask(const Identity& observer, const TaskId& task, milliseconds patience) {
  Answer answer;
  try {
    observe(observer, task, patience, [&](const rpc::Table& table) {
      if (table.wall_clock_ms() > 0) {
        const auto here = std::chrono::system_clock::now().time_since_epoch();
        answer.clock_ahead =
            milliseconds(table.wall_clock_ms()) - std::chrono::duration_cast<milliseconds>(here);
      }
      for (const auto& row : table.tasks()) {
        if (row.task().type() == task.type && row.task().index() == task.index) {
          answer.state = fmt::format("{}, at step {}", printable(row.state()), row.step());
        }
      }
      return false;
    });
  } catch (const Error& error) {
    answer.failure = printable(error.what());
    // The finding names the task already.
    const auto prefix = fmt::format("{} ({}): ", task.name(), observer.cluster.task_address(task));
    if (answer.failure.starts_with(prefix)) answer.failure.erase(0, prefix.size());
    answer.refused = error.code() == ErrorCode::kInvalidArgument;
  }
  return answer;
}

// 0 if one of its addresses takes a connection, else the last reason.
int connect_to(const TaskHost& host, milliseconds patience) {
  int reason = EHOSTUNREACH;
  for (const SocketAddress& address : host.resolved) {
    reason = try_to_connect(address, patience);
    if (reason == 0) break;
  }
  return reason;
}

Finding unreached(const TaskHost& host, int reason, milliseconds patience) {
  const auto finding = [&](Level level, const std::string& text) {
    return Finding{level, host.task.name(), fmt::format("{} {}", host.to_string(), text)};
  };
  switch (reason) {
    case ECONNREFUSED:
      return finding(Level::kWarning, "refuses connections: the task is not started yet, or has ended");
    case ETIMEDOUT:
      return finding(
          Level::kProblem,
          fmt::format("is silent for {} ms: a firewall drops the connection, or the machine is down; open "
                      "port {} there",
                      patience.count(), host.port));
    case EHOSTUNREACH:
    case ENETUNREACH:
      return finding(
          Level::kProblem,
          fmt::format("is not reachable: {}; is this machine on the same network?", std::strerror(reason)));
    default:
      return finding(Level::kProblem, fmt::format("cannot be connected to: {}", std::strerror(reason)));
  }
}

// Of a task that takes connections.
Findings check_answer(const TaskHost& host, const NetworkCheckOptions& options) {
  const std::string name = host.task.name();
  if (!options.observer) {
    return {{Level::kWarning, name,
             fmt::format("{} takes connections; what is there was not asked", host.to_string())}};
  }
  const Answer answer = ask(*options.observer, host.task, options.answer_patience);
  if (answer.refused) {
    return {{Level::kProblem, name, fmt::format("{} refuses, saying: {}", host.to_string(), answer.failure)}};
  }
  if (!answer.failure.empty()) {
    return {{Level::kProblem, name,
             fmt::format("{} takes connections, but is no task that answers: {}; another program has the "
                         "port, or the task hangs or wants other --security",
                         host.to_string(), answer.failure)}};
  }
  Findings findings{
      {Level::kOk, name,
       fmt::format("{} answers: same cluster, same protocol; {}", host.to_string(), answer.state)}};
  if (answer.clock_ahead) {
    if (auto finding = check_clock(host.task, *answer.clock_ahead)) findings.push_back(std::move(*finding));
  }
  return findings;
}

Findings check_other(const TaskHost& host, const NetworkCheckOptions& options) {
  if (const int reason = connect_to(host, options.connect_patience)) {
    return {unreached(host, reason, options.connect_patience)};
  }
  return check_answer(host, options);
}

Findings check_own(const TaskHost& host, const NetworkCheckOptions& options) {
  const std::string name = host.task.name();
  try {
    check_can_listen(name, options.bind.empty() ? host.host : options.bind, host.port);
    return {
        {Level::kOk, name,
         fmt::format("{} is this task: an address of this machine, and the port is free", host.to_string())}};
  } catch (const Unavailable& error) {
    // The task itself may have it, which is as it should be.
    Findings findings = check_other(host, options);
    const bool itself = findings.front().level != Level::kProblem;
    if (!itself)
      findings.front() = {Level::kProblem, name, fmt::format("{}; {}", error.what(), findings.front().text)};
    return findings;
  } catch (const Error& error) {
    return {{Level::kProblem, name, error.what()}};
  }
}

}  // namespace

bool TaskHost::is_loopback() const {
  return !resolved.empty() && std::ranges::all_of(resolved, &SocketAddress::is_loopback);
}

std::string TaskHost::to_string() const {
  std::vector<std::string> names;
  for (const SocketAddress& one : resolved) names.push_back(one.host());
  const bool numeric = names.size() == 1 && names.front() == host;
  return names.empty() || numeric ? address : fmt::format("{} ({})", address, fmt::join(names, ", "));
}

std::vector<TaskHost> resolve_tasks(const ClusterSpec& cluster) {
  std::vector<TaskHost> hosts;
  for (const TaskId& task : cluster.tasks()) {
    const std::string& address = cluster.task_address(task);
    const HostPort parts = parse_address(address, task.name());
    hosts.push_back({.task = task, .address = address, .host = parts.host, .port = parts.port});
  }
  for_each_at_once(hosts.size(), [&](std::size_t i) {
    try {
      hosts[i].resolved = resolve_host(hosts[i].host, hosts[i].port);
    } catch (const Error& error) {
      hosts[i].failure = error.what();
    }
  });
  return hosts;
}

Findings check_names(const std::vector<TaskHost>& hosts, const std::optional<TaskId>& own,
                     const std::string& machine_name) {
  Findings findings;
  const auto here = std::ranges::find_if(hosts, &TaskHost::is_loopback);
  const auto elsewhere = std::ranges::find_if(
      hosts, [](const TaskHost& host) { return !host.resolved.empty() && !host.is_loopback(); });
  if (here != hosts.end() && elsewhere != hosts.end()) {
    findings.push_back(
        {Level::kWarning, "names",
         fmt::format("{} is at {} and {} at {}: a loopback address is another machine on each machine; give "
                     "every task an address that all can reach",
                     here->task.name(), here->to_string(), elsewhere->task.name(), elsewhere->to_string())});
  }
  const auto self = std::ranges::find_if(hosts, [&](const TaskHost& host) { return host.task == own; });
  if (self != hosts.end() && self->host == machine_name && self->is_loopback()) {
    findings.push_back(
        {Level::kWarning, "names",
         fmt::format("this machine's own name, {}, stands for {}: {} would listen where no other machine "
                     "reaches it; mend /etc/hosts, or write the address in numbers",
                     machine_name, self->resolved.front().host(), self->task.name())});
  }
  return findings;
}

std::optional<Finding> check_clock(const TaskId& task, milliseconds ahead) {
  constexpr milliseconds kTolerated{2000};
  if (std::chrono::abs(ahead) <= kTolerated) return std::nullopt;
  return Finding{Level::kWarning, task.name(),
                 fmt::format("its clock is {:.1f} s {} this machine's: only the times in logs are affected",
                             std::chrono::duration<double>(std::chrono::abs(ahead)).count(),
                             ahead.count() > 0 ? "ahead of" : "behind")};
}

Findings check_tasks(const std::vector<TaskHost>& hosts, const NetworkCheckOptions& options) {
  std::vector<Findings> found(hosts.size());
  for_each_at_once(hosts.size(), [&](std::size_t i) {
    const TaskHost& host = hosts[i];
    if (!host.failure.empty()) {
      found[i] = {
          {Level::kProblem, host.task.name(),
           fmt::format("{}: {}; is the name right, and known on this machine?", host.address, host.failure)}};
    } else {
      found[i] = host.task == options.own ? check_own(host, options) : check_other(host, options);
    }
  });
  Findings all;
  for (Findings& findings : found) std::ranges::move(findings, std::back_inserter(all));
  return all;
}

}  // namespace tandem::internal
