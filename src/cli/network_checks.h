#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/net.h"
#include "cli/finding.h"
#include "rpc/handshake.h"
#include "tandem/cluster_resolver.h"

namespace tandem::internal {

// A task and what its host's name stands for on this machine.
struct TaskHost {
  TaskId task = {};
  std::string address = {};  // as in the cluster
  std::string host = {};
  int port = 0;
  std::vector<SocketAddress> resolved = {};
  std::string failure = {};  // why nothing was resolved

  bool is_loopback() const;
  // "localhost:2222 (127.0.0.1)"
  std::string to_string() const;
};

// In the order of ClusterSpec::tasks(); asks the system's resolver about all of them at once.
std::vector<TaskHost> resolve_tasks(const ClusterSpec& cluster);

// Loopback names beside others; a machine whose own name stands for loopback.
Findings check_names(const std::vector<TaskHost>& hosts, const std::optional<TaskId>& own,
                     const std::string& machine_name);

struct NetworkCheckOptions {
  std::optional<TaskId> own = {};
  std::string bind = {};  // where the own task listens, if it is not its host
  // Who asks; empty: connections are tried, nothing is asked.
  std::optional<Identity> observer = {};
  std::chrono::milliseconds connect_patience{2000};
  std::chrono::milliseconds answer_patience{3000};
};

// A finding or two for each task: whether it can be reached and is one of the same cluster, or, for this
// process's own, whether its address can be listened at. All tasks are asked at once, so that many silent
// ones take little longer than one.
Findings check_tasks(const std::vector<TaskHost>& hosts, const NetworkCheckOptions& options);

// What the clock of another task, `ahead` of this machine's, is worth saying; nothing if they agree.
std::optional<Finding> check_clock(const TaskId& task, std::chrono::milliseconds ahead);

}  // namespace tandem::internal
