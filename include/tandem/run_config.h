#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tandem/cluster_resolver.h"
#include "tandem/placement.h"
#include "tandem/strategy.h"

namespace tandem {

// How an Estimator runs. Names and defaults are those of tf.estimator.RunConfig.
struct RunConfig {
  // Where checkpoints and summaries go. Empty: TF_CONFIG's, or a new folder for temporary files.
  std::string model_dir = {};
  // Decides the initial values, dropout and shuffling. Unset: drawn, and told in the log.
  std::optional<std::uint64_t> tf_random_seed = {};
  std::int64_t save_summary_steps = 100;  // 0: never
  // How often to save: one of them. Neither: every 600 seconds; 0: never but at the end.
  std::optional<std::int64_t> save_checkpoints_steps = {};
  std::optional<double> save_checkpoints_secs = {};
  int keep_checkpoint_max = 5;  // 0: all
  double keep_checkpoint_every_n_hours = 10000;
  std::int64_t log_step_count_steps = 100;  // 0: never
  // Unset: one replica on the first device; to train in a cluster with ps tasks, a ParameterServerStrategy.
  std::optional<Strategy> train_distribute = {};
  // Where variables live, in a cluster that has ps tasks and no train_distribute: the device of each, such as
  // "/job:ps/task:1"; replica_device_setter() makes one. Empty: one ps after the other. A strategy places its
  // variables itself (ParameterServerOptions::ps_strategy).
  std::function<std::string(const VariableToPlace&)> device_fn = {};
  // How tasks talk to each other: "grpc", which is also what empty means. There is no other.
  std::string protocol = {};
  std::optional<Strategy> eval_distribute = {};
  // TensorFlow's other place for the two.
  struct DistributeConfig {
    std::optional<Strategy> train_distribute = {};
    std::optional<Strategy> eval_distribute = {};
    // TensorFlow's way to train from a program outside the cluster. Here the program runs on every task, or
    // hands out its steps through a ClusterCoordinator; so this must stay unset.
    std::optional<ClusterSpec> remote_cluster = {};
  } experimental_distribute = {};
  // How long a worker that is not in sync with others waits at most before it starts, so that they do not all
  // start at once.
  double experimental_max_worker_delay_secs = 60;
  // How long an evaluator waits for the next checkpoint, and a session for parameter servers that are gone.
  double session_creation_timeout_secs = 7200;

  // The cluster, and which task of it this is. Unset: what resolve_cluster() finds (TF_CONFIG, Slurm, ...).
  std::optional<ResolvedCluster> cluster = {};

  // What TensorFlow reads from TF_CONFIG; alone in no cluster a process is worker 0, and chief. Of a
  // RunConfig that an Estimator has taken, see Estimator::config(): others have no cluster unless it is
  // given.
  ClusterSpec cluster_spec() const;
  std::string task_type() const;
  int task_id() const;
  bool is_chief() const;
  std::string master() const;
  int num_ps_replicas() const;
  int num_worker_replicas() const;  // with the chief
  // Chief first, then the other jobs by name, ps last. Nothing for an evaluator.
  std::optional<int> global_id_in_cluster() const;

  // A copy in which what is unset, and can be found out, is set. Throws InvalidArgument for what makes no
  // sense: two periods for saving, two different strategies for training, a cluster with two chiefs, a
  // device_fn that nobody would ask.
  RunConfig resolved() const;
};

}  // namespace tandem
