#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cluster_resolver.h"
#include "tandem/communicator.h"
#include "tandem/placement.h"
#include "tandem/server.h"
#include "tandem/strategy.h"

namespace tandem {

struct ParameterServerOptions {
  // Who is in it, and which task this is. Unset: resolve_cluster(), so TF_CONFIG or another launcher.
  std::optional<ResolvedCluster> cluster = {};

  // The replicas of this task, which are in sync with each other. Empty: every visible GPU, else one CPU
  // device.
  std::vector<std::string> devices = {};
  // 0: the usable cores divided by the replicas on this machine.
  int threads_per_replica = 0;

  // Which ps each variable goes to. Empty: one after the other.
  PsStrategy ps_strategy = {};
  // How large variables are cut, so that several ps tasks share one. Empty: they are not.
  Partitioner variable_partitioner = {};

  // kBfloat16: gradients and values travel in 16 bits, and are added and kept as they were.
  WireFormat wire_format = WireFormat::kFull;

  // How a ps serves; a worker needs to know max_staleness too. See ParameterServiceOptions.
  ParameterServiceOptions service = {};

  // How long to wait for a ps that is gone, before this task gives up with Unavailable.
  std::chrono::milliseconds ps_outage = std::chrono::minutes(5);
  // How long the chief waits, at the end of a training, for workers that are there but get no further.
  std::chrono::milliseconds worker_patience = std::chrono::minutes(5);

  // This process also serves as the ps of its own index: one process less on each machine.
  bool also_ps = false;

  // Listening, security, and what else must be the same on every task; `optional_jobs` and `offer` are set
  // here.
  ServerOptions server = {};

  // For models that are not given one. Unset: drawn, the same for all.
  std::optional<std::uint64_t> seed = {};
};

// Variables live on ps tasks; each worker fetches them, computes gradients on its replicas, and pushes their
// sum, without waiting for the others. TensorFlow's ParameterServerStrategy, in the form in which every
// worker runs the program; see coordinator.h for the other one.
//
//   if (tandem::ParameterServerStrategy::serve(options)) return 0;      // a ps is done
//   tandem::ParameterServerStrategy strategy(options);                  // chief and workers go on here
//
// Workers may come, go and come again at any time. One model at a time lives on the ps tasks. The chief (or
// worker 0) gives the variables their first values, saves and evaluates; a step is one worker's, and
// Model::global_step() counts those of all. Batch norm's statistics stay with each worker; what is saved is
// the chief's.
//
// Each worker takes every n-th global batch, or files of its own, as the dataset's auto_shard_policy() says.
// With max_staleness 0 the workers split every batch as MultiWorkerMirroredStrategy's do, and
// num_replicas_in_sync() counts the replicas of all.
class ParameterServerStrategy final : public Strategy {
 public:
  // Listens and finds every ps; the first step waits for the chief to begin. Throws InvalidArgument without a
  // cluster that has ps tasks, and on a ps task, and what Server throws.
  explicit ParameterServerStrategy(ParameterServerOptions options = {});

  // On a ps task: serves until the training is over, and returns true. On any other: false, at once. Throws
  // what Server throws.
  static bool serve(const ParameterServerOptions& options = {});
};

namespace experimental {

using tandem::ParameterServerStrategy;

}  // namespace experimental
}  // namespace tandem
