#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cluster_spec.h"

namespace tandem {

// Where variables live when parameter servers hold them, and how a large one is cut. Every task that places
// the same variables in the same order gets the same answers, so none has to be told.

// What a placement is asked about.
struct VariableToPlace {
  std::string name = {};

  std::uint64_t bytes = 0;

  // The device scope around the variable, e.g. "/gpu:0" or "/job:ps/task:1". The parts it names win over
  // those of the placement. Empty: none.
  std::string device = {};
};

// The ps task, from 0, for the next variable. Called once per variable, in the order of their creation.
using PsStrategy = std::function<int(const VariableToPlace&)>;

// One ps task after the other. A value: a copy goes on from where the original was.
class RoundRobin {
 public:
  // Throws InvalidArgument unless there is a task.
  explicit RoundRobin(int num_tasks);

  int operator()(const VariableToPlace& variable);

 private:
  int num_tasks_;
  int next_ = 0;
};

// The ps task with the least load so far, of equal ones the first; the variable's load is then added to it.
// No task has more than the mean of all plus the largest variable. A value, as RoundRobin is.
class GreedyLoadBalancing {
 public:
  using LoadFn = std::function<double(const VariableToPlace&)>;

  // load_fn must answer with a finite load of at least 0; without it, the variable's bytes are its load.
  // Throws InvalidArgument unless there is a task.
  explicit GreedyLoadBalancing(int num_tasks, LoadFn load_fn = {});

  // Throws InvalidArgument for a load that is negative or not finite.
  int operator()(const VariableToPlace& variable);

 private:
  LoadFn load_fn_;
  std::vector<double> loads_;
};

struct ReplicaDeviceSetterOptions {
  // How many tasks ps_device's job has. With `cluster` it is not read.
  int ps_tasks = 0;

  // Counts the ps tasks instead. Where some indices are missing, the tasks that there are get the variables.
  ClusterSpec cluster = {};

  // Where variables go; the strategy adds the task.
  std::string ps_device = "/job:ps";

  // Where everything else goes.
  std::string worker_device = "/job:worker";

  // False: a variable with a device scope of its own goes exactly there. True: what the scope does not name
  // comes from ps_device.
  bool merge_devices = true;

  // Empty: RoundRobin over the ps tasks.
  PsStrategy ps_strategy = {};
};

// What replica_device_setter() returns: a function from a variable to the name of its device.
//
// A variable whose scope names another job is not asked of the strategy, so it takes nobody's turn. Not
// thread-safe; a value: a copy goes on from where the original was.
class ReplicaDeviceSetter {
 public:
  // False if there are no ps tasks: then every device is what its scope says, as where TensorFlow's function
  // is None.
  explicit operator bool() const { return !tasks_.empty(); }

  // E.g. "/job:ps/task:1", "/job:ps/task:1/device:CPU:0". Throws InvalidArgument if the scope is no device
  // name, or the strategy answers with a task that is not there.
  std::string operator()(const VariableToPlace& variable);

  // The device of whatever is no variable, inside this scope: "/job:worker".
  std::string worker(const std::string& device = {}) const;

  // Itself as what ParameterServerOptions::ps_strategy asks: the number of the task. That throws
  // InvalidArgument for a variable that goes to no ps task.
  operator PsStrategy() const;  // NOLINT: implicit by intent

 private:
  friend ReplicaDeviceSetter replica_device_setter(const ReplicaDeviceSetterOptions& options);
  ReplicaDeviceSetter() = default;

  std::vector<int> tasks_;  // of the ps job, ascending
  std::string ps_device_;
  std::string worker_device_;
  bool merge_devices_ = true;
  PsStrategy strategy_;
};

// Throws InvalidArgument if ps_tasks is negative or ps_device or worker_device is no device name.
ReplicaDeviceSetter replica_device_setter(const ReplicaDeviceSetterOptions& options);

// How many pieces a variable is cut into along each axis, from its shape and the bytes of one element. Only
// the first axis is ever cut: a piece is a range of rows. A scalar has no axis and is never cut.
using Partitioner =
    std::function<std::vector<std::int64_t>(const std::vector<std::int64_t>& shape, int element_bytes)>;

// So many pieces, or one per row if there are fewer rows. Calls throw InvalidArgument for a negative
// dimension.
class FixedShardsPartitioner {
 public:
  // Throws InvalidArgument unless num_shards is at least 1.
  explicit FixedShardsPartitioner(std::int64_t num_shards);

  std::vector<std::int64_t> operator()(const std::vector<std::int64_t>& shape, int element_bytes) const;

 private:
  std::int64_t num_shards_;
};

// As many pieces as leave each with at least min_shard_bytes, more or less: bytes / min_shard_bytes, rounded
// up, but at most max_shards and one per row. With the default of one nothing is cut: max_shards is mostly
// the number of ps tasks.
class MinSizePartitioner {
 public:
  // Throws InvalidArgument unless both are at least 1.
  explicit MinSizePartitioner(std::int64_t min_shard_bytes = 256 << 10, std::int64_t max_shards = 1);

  std::vector<std::int64_t> operator()(const std::vector<std::int64_t>& shape, int element_bytes) const;

 private:
  std::int64_t min_shard_bytes_;
  std::int64_t max_shards_;
};

// As few pieces as keep each within max_shard_bytes, but at most max_shards and one per row.
class MaxSizePartitioner {
 public:
  // Throws InvalidArgument unless both are at least 1.
  explicit MaxSizePartitioner(std::int64_t max_shard_bytes, std::optional<std::int64_t> max_shards = {});

  std::vector<std::int64_t> operator()(const std::vector<std::int64_t>& shape, int element_bytes) const;

 private:
  std::int64_t max_shard_bytes_;
  std::optional<std::int64_t> max_shards_;
};

}  // namespace tandem
