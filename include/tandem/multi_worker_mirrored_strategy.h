#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cluster_resolver.h"
#include "tandem/communicator.h"
#include "tandem/task_server.h"
#include "tandem/strategy.h"

namespace tandem {

struct MultiWorkerMirroredOptions {
  // The cluster, and which task of it this process is. Unset: what resolve_cluster() finds (TF_CONFIG, Slurm,
  // mpirun, ...).
  std::optional<ResolvedCluster> cluster = {};

  // One replica per entry, as many on every task. Empty: every visible GPU, or "/cpu:0" where there is none.
  std::vector<std::string> devices = {};

  // Intra-op threads of each CPU replica, the same on every task. 0: the usable cores divided by the replicas
  // of all chief and worker tasks whose address names this machine.
  int threads_per_replica = 0;

  // How gradients travel between the tasks; the same on every task.
  CommunicationOptions communication = {};

  // Where this task listens, how the tasks know each other, how long the start may take, and in `program`
  // what must be the same on all of them. `offer` and `optional_jobs` are the strategy's own.
  ServerOptions server = {};

  // Where the other tasks reach this one with their gradients. 0: any free port; the line that the join logs
  // tells which.
  int data_port = 0;

  // For models that are given none. Unset: the chief draws one. The chief's holds for all.
  std::optional<std::uint64_t> seed = {};
};

// Mirrored over several machines: one copy of the model per device of every chief and worker task, equal
// after every step. Every task runs the same program.
//
// Not part of it are tasks of other jobs: a ps entry is ignored with a notice; in the process of an
// evaluator, as in one without a cluster, the strategy has that process's replicas alone.
//
// What is created and computed under it is collective where it concerns all replicas: making a Model, fit,
// evaluate, predict, values(), Strategy::reduce(). Every task must do these alike. An error on one task stops
// them all, which throw Aborted with its reason; if a task is lost they throw Unavailable, which names it.
//
// Not thread-safe: one run() at a time. When its last handle goes, this task has finished its part.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  // Starts to listen, waits for all tasks, and connects to them. Throws what Server's constructor and
  // wait_for_all() throw; InvalidArgument for a device that is missing or named twice, or in the process of a
  // ps.
  explicit MultiWorkerMirroredStrategy(MultiWorkerMirroredOptions options = {});
  // TensorFlow's old signature.
  explicit MultiWorkerMirroredStrategy(CommunicationImplementation implementation,
                                       MultiWorkerMirroredOptions options = {});
};

// TensorFlow's old names.
namespace experimental {

using tandem::MultiWorkerMirroredStrategy;
using CollectiveCommunication = CommunicationImplementation;
using CollectiveHints = CommunicationOptions;

}  // namespace experimental
}  // namespace tandem
