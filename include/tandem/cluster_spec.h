#pragma once

#include <compare>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// One process of a cluster, as TensorFlow names it: ("worker", 1).
struct TaskId {
  std::string type = {};
  int index = 0;

  // "worker:1"
  std::string name() const;

  friend auto operator<=>(const TaskId&, const TaskId&) = default;
};

// The tasks of one job: index to "host:port". Most have the indices 0 to n-1; some may be missing.
class JobTasks {
 public:
  JobTasks(std::initializer_list<const char*> addresses);
  JobTasks(const std::vector<std::string>& addresses);
  JobTasks(std::map<int, std::string> sparse);

  const std::map<int, std::string>& addresses() const { return addresses_; }
  friend bool operator==(const JobTasks&, const JobTasks&) = default;

 private:
  std::map<int, std::string> addresses_;
};

// Which tasks a cluster has and where each one listens; the same value on every machine.
//
//   ClusterSpec cluster({{"ps", {"localhost:2222"}}, {"worker", {"localhost:2223", "localhost:2224"}}});
//
// Any job name and any text as an address is taken, as in TensorFlow; check() is the strict part, which every
// resolver and Server applies. A value; safe to read from any thread.
class ClusterSpec {
 public:
  using Jobs = std::vector<std::pair<std::string, JobTasks>>;

  ClusterSpec() = default;
  // Throws InvalidArgument if a job is named twice or an index is negative.
  ClusterSpec(std::initializer_list<Jobs::value_type> jobs);
  explicit ClusterSpec(Jobs jobs);

  bool empty() const { return jobs_.empty(); }

  // In the order they were given.
  std::vector<std::string> jobs() const;
  bool has_job(const std::string& job) const;

  // These throw InvalidArgument that names the unknown job, with those there are.
  int num_tasks(const std::string& job) const;
  std::vector<int> task_indices(const std::string& job) const;  // ascending
  // Up to the highest index; empty where an index is missing.
  std::vector<std::optional<std::string>> job_tasks(const std::string& job) const;
  // Throws InvalidArgument that names an unknown index, with those there are.
  const std::string& task_address(const std::string& job, int index) const;
  const std::string& task_address(const TaskId& task) const { return task_address(task.type, task.index); }

  // Every task, in the one order all of them agree on: chief, workers, ps, evaluator, then other jobs by
  // name.
  std::vector<TaskId> tasks() const;

  // TensorFlow's as_dict() as JSON text: a list where the indices are 0 to n-1, else a map from index.
  std::string to_json() const;

  // SHA-256 over jobs, indices and addresses, whatever order the jobs were given in: the first 128 bits, as
  // 32 hexadecimal digits. Tasks with different ids are not in one cluster.
  std::string id() const;

  // Throws InvalidArgument with one line (key, value, a correct example) unless every job is chief, master,
  // worker, ps or evaluator, there is at most one chief, and every address is "host:port" that no other task
  // has.
  void check() const;

  // The order of the jobs does not matter.
  friend bool operator==(const ClusterSpec& a, const ClusterSpec& b);

 private:
  const JobTasks& tasks_of(const std::string& job) const;

  Jobs jobs_;
};

// "ClusterSpec({'ps': [...], 'worker': [...]})", jobs sorted by name.
std::ostream& operator<<(std::ostream& out, const ClusterSpec& cluster);

// A task's address, taken apart: "host:port", "[::1]:port".
struct HostPort {
  std::string host;
  int port = 0;
};

// Throws InvalidArgument with what is wrong (a user name, a scheme, no port, a port out of range) and how to
// write it. `what` names the place, e.g. "cluster.worker[1]". Port 0 is allowed only if `any_port` is set.
HostPort parse_address(const std::string& address, const std::string& what, bool any_port = false);

}  // namespace tandem
