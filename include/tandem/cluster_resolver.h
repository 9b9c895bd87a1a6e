#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/cluster_spec.h"

namespace tandem {

// What a resolver found out: the cluster and which of its tasks this process is. A plain value, so that code
// can also fill it in by hand (TensorFlow's SimpleClusterResolver).
struct ResolvedCluster {
  ClusterSpec cluster = {};  // empty: this process trains alone
  // Empty without a cluster.
  std::optional<TaskId> task = {};
  std::string rpc_layer = {};    // "" or "grpc"
  std::string environment = {};  // "cloud" on Google's platforms, else ""
  std::string model_dir = {};    // as TF_CONFIG gives it; "" if it does not
  std::string session_master = {};
  // Where it came from, for messages: "TF_CONFIG", "Slurm", "--worker_hosts".
  std::string source = "code";

  // TensorFlow's rules. Without a cluster: master "", chief true, one worker, id 0.
  // Where this process would be reached by a session: session_master if given; "" for a single task; else its
  // own address, with "rpc_layer://" in front. Empty for an evaluator outside the cluster: it has no address.
  std::optional<std::string> master() const;
  // The chief task if there is one, else worker 0; an evaluator is chief of its own one-task cluster.
  bool is_chief() const;
  // Chiefs and workers; 1 for an evaluator in the cluster. Empty for a ps and for an evaluator outside the
  // cluster: TensorFlow has no number there.
  std::optional<int> worker_count() const;
  // Chief 0, worker i + chiefs, an evaluator its own index; empty for a ps.
  std::optional<int> id_in_cluster() const;

  // Throws InvalidArgument with one line (key, value, a correct example) unless the cluster passes check()
  // and the task is one of it, or an evaluator beside it. A task may be missing.
  void check() const;
};

// A variable of the environment: its value, or nothing if it is unset or empty. Tests give their own.
using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment process_environment();

// Finds out about the cluster from somewhere. One class per launcher.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;
  // "TF_CONFIG", "Slurm", ...
  virtual std::string name() const = 0;
  // Empty if this launcher did not start the process. Throws InvalidArgument with one line (key, value, a
  // correct example) if it did and said something wrong.
  virtual std::optional<ResolvedCluster> resolve() const = 0;
};

// Values that win over what TF_CONFIG or a cluster file says about this process.
struct TaskOverrides {
  std::string task_type = {};  // "": as given there
  std::optional<int> task_index = {};
  std::string rpc_layer = {};  // "": as given there
};

// The variable TF_CONFIG, as TensorFlow and Kubeflow's TFJob have it:
//   {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}
class TFConfigClusterResolver final : public ClusterResolver {
 public:
  explicit TFConfigClusterResolver(TaskOverrides overrides = {},
                                   Environment environment = process_environment());
  // The JSON itself, e.g. of a flag.
  explicit TFConfigClusterResolver(std::string text, TaskOverrides overrides = {});

  std::string name() const override { return "TF_CONFIG"; }
  std::optional<ResolvedCluster> resolve() const override;

 private:
  std::optional<std::string> text_;
  TaskOverrides overrides_;
  Environment environment_;
};

// The same JSON in a file. resolve() throws NotFound if it cannot be read.
class FileClusterResolver final : public ClusterResolver {
 public:
  // The file that the variable TANDEM_CLUSTER_FILE names, if it does.
  explicit FileClusterResolver(TaskOverrides overrides = {}, Environment environment = process_environment());
  explicit FileClusterResolver(std::string path, TaskOverrides overrides = {});

  std::string name() const override { return path_ ? "the cluster file" : "TANDEM_CLUSTER_FILE"; }
  std::optional<ResolvedCluster> resolve() const override;

 private:
  std::optional<std::string> path_;
  TaskOverrides overrides_;
  Environment environment_;
};

// Values of the code: resolve() checks them and gives them back.
class SimpleClusterResolver final : public ClusterResolver {
 public:
  explicit SimpleClusterResolver(ResolvedCluster cluster) : cluster_(std::move(cluster)) {}

  std::string name() const override { return cluster_.source; }
  std::optional<ResolvedCluster> resolve() const override;

 private:
  ResolvedCluster cluster_;
};

// What a program's flags say of its cluster.
struct ClusterFlags {
  std::string cluster_file = {};  // a file with the JSON of TF_CONFIG
  std::string worker_hosts = {};  // "10.0.0.1:2222,10.0.0.2:2222": one worker each
  // Which task this is. Alone, these two win over what TF_CONFIG or a cluster file says.
  std::string task_type = {};
  std::optional<int> task_index = {};
};

// --worker_hosts and --task_index; the index may be left out if there is one worker. Takes no notice of
// cluster_file.
class FlagsClusterResolver final : public ClusterResolver {
 public:
  explicit FlagsClusterResolver(ClusterFlags flags) : flags_(std::move(flags)) {}

  std::string name() const override { return "--worker_hosts"; }
  std::optional<ResolvedCluster> resolve() const override;

 private:
  ClusterFlags flags_;
};

struct SlurmOptions {
  // Which task is what, by rank: {{"ps", 1}, {"worker", 3}} makes rank 0 ps:0 and rank 1 worker:0. Empty: all
  // are workers.
  std::vector<std::pair<std::string, int>> jobs = {};
  // The first task of a host listens here, the next one on the port after it.
  int port_base = 8888;
  // The same number on every node; empty: as Slurm says.
  std::optional<int> tasks_per_node = {};
  std::string rpc_layer = "grpc";
  Environment environment = process_environment();
};

// A task of `srun`. Finds nothing if mpirun or torchrun was started inside it: these know better.
class SlurmClusterResolver final : public ClusterResolver {
 public:
  explicit SlurmClusterResolver(SlurmOptions options = {}) : options_(std::move(options)) {}

  std::string name() const override { return "Slurm"; }
  std::optional<ResolvedCluster> resolve() const override;

 private:
  SlurmOptions options_;
};

// For launchers that tell a process its rank, but not where the others run.
struct RankOptions {
  // The address of each rank. Empty: only if all run on this machine, at localhost and the ports from
  // port_base on.
  std::vector<std::string> hosts = {};
  // 0: 8888 under mpirun; under torchrun the port after MASTER_PORT, which torchrun itself uses.
  int port_base = 0;
  Environment environment = process_environment();
};

// Open MPI's mpirun: OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_SIZE.
class MpiClusterResolver final : public ClusterResolver {
 public:
  explicit MpiClusterResolver(RankOptions options = {}) : options_(std::move(options)) {}

  std::string name() const override { return "MPI"; }
  std::optional<ResolvedCluster> resolve() const override;

 private:
  RankOptions options_;
};

// torchrun: RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and MASTER_PORT.
class TorchrunClusterResolver final : public ClusterResolver {
 public:
  explicit TorchrunClusterResolver(RankOptions options = {}) : options_(std::move(options)) {}

  std::string name() const override { return "torchrun"; }
  std::optional<ResolvedCluster> resolve() const override;

 private:
  RankOptions options_;
};

// Several clusters as one. Jobs that all give as lists are joined one after the other (a list given twice
// counts once); others by index, and two addresses for one task are an error. What is not the cluster comes
// from the first that has it.
class UnionClusterResolver final : public ClusterResolver {
 public:
  explicit UnionClusterResolver(std::vector<std::shared_ptr<const ClusterResolver>> parts);

  std::string name() const override { return "union"; }
  std::optional<ResolvedCluster> resolve() const override;

 private:
  std::vector<std::shared_ptr<const ClusterResolver>> parts_;
};

// The cluster of this process, from the first of these that says something: --worker_hosts, --cluster_file,
// TANDEM_CLUSTER_FILE, TF_CONFIG; Slurm, MPI and torchrun if they started more than one task. With
// --worker_hosts but no --task_index the rank of one of the last three is the index. If nothing says
// anything, the cluster is empty and `source` is "". A log line says if an explicit source was passed over
// that contradicts the chosen one. Throws as the resolvers do.
ResolvedCluster resolve_cluster(const ClusterFlags& flags = {},
                                const Environment& environment = process_environment());

}  // namespace tandem
