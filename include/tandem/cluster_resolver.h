#pragma once

#include <memory>
#include <optional>
#include <string>
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
  // own address, with "rpc_layer://" in front.
  std::string master() const;
  // The chief task if there is one, else worker 0; an evaluator is chief of its own one-task cluster.
  bool is_chief() const;
  // Chiefs and workers; 1 for an evaluator in the cluster. Empty for a ps and for an evaluator outside the
  // cluster: TensorFlow has no number there.
  std::optional<int> worker_count() const;
  // Chief 0, worker i + chiefs, an evaluator its own index; empty for a ps or an evaluator outside the
  // cluster.
  std::optional<int> id_in_cluster() const;
};

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

}  // namespace tandem
