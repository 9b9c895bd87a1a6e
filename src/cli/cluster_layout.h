#pragma once

#include <string>
#include <vector>

namespace tandem::internal {

struct ClusterShape {
  int workers = 0;
  int ps = 0;
  bool chief = false;
  bool evaluator = false;

  int num_tasks() const { return workers + ps + (chief ? 1 : 0) + (evaluator ? 1 : 0); }
};

// A task and where it listens.
struct PlacedTask {
  std::string type = {};
  int index = 0;
  std::string address = {};
  std::string host = {};

  std::string name() const;  // "worker:1"
};

// The tasks in the order chief, worker, ps, evaluator; task i listens on ports[i] of this host.
std::vector<PlacedTask> place_on_host(const ClusterShape& shape, const std::string& host,
                                      const std::vector<int>& ports);

// Round robin on the hosts, "name" or "name:port"; the tasks of one host get ports from its own, or from
// base_port, upwards. Throws InvalidArgument that names a host which cannot be read.
std::vector<PlacedTask> place_on_hosts(const ClusterShape& shape, const std::vector<std::string>& hosts,
                                       int base_port);

// What TF_CONFIG must be for one of them.
std::string tf_config(const std::vector<PlacedTask>& tasks, const PlacedTask& task);

// One word of a shell's command line, whatever it contains.
std::string shell_quoted(const std::string& text);

}  // namespace tandem::internal
