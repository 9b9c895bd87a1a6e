#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tandem/task_server.h"

namespace tandem {

// How a ps task serves. What concerns all tasks must be the same on all: give each of them the same flags.
struct ParameterServiceOptions {
  // How many steps a worker may be ahead of the slowest one. 0: the workers' gradients for a step are added,
  // in the order of the workers, and applied once. Unset: nobody waits for anybody.
  std::optional<int> max_staleness = {};

  // With max_staleness 0: a step is complete with the gradients of so many workers, and those of slower ones
  // are dropped (TensorFlow's SyncReplicasOptimizer with backup workers). Unset: of all that live.
  std::optional<int> aggregate = {};

  // Leave out gradients that are infinite or not numbers, and tell their worker so. Else they are applied.
  bool reject_not_finite = false;

  // Where it saves its part, in a folder of its own ("ps-0", ...), to go on from there when it is started
  // again. Empty: it does not, and what it holds goes with it.
  std::string snapshot_dir = {};
  // After this time, or so many updates, whatever comes first.
  std::chrono::milliseconds snapshot_interval{10'000};
  std::uint64_t snapshot_updates = 1000;

  // Port for gradients and values, beside the task's own; 0: any free one.
  int data_port = 0;
};

// TensorFlow's tf.train.Server: what one task of a cluster shows to the others, and all that a parameter
// server is:
//
//   tandem::Server server(cluster, "ps", 0);
//   server.join();                              // until the training is over
//
// A task of another job gets what TaskServer is.
class Server : public TaskServer {
 public:
  // Throws as TaskServer does; NoUsableCheckpoint if a ps has snapshots, but none that is whole.
  explicit Server(const ClusterSpec& cluster, const std::string& job = {}, std::optional<int> index = {},
                  ServerOptions options = {}, ParameterServiceOptions service = {});
  ~Server();
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;

  // Of a ps: returns when the chief has finished and no worker is left, or when all workers have been gone
  // for long. It needs neither all tasks nor waits for any; the loss of a worker is none of its own. Of
  // others: see TaskServer.
  void join();

 private:
  struct Service;
  Server(const ClusterSpec& cluster, const std::string& job, std::optional<int> index, ServerOptions options,
         std::unique_ptr<Service> service);
  std::unique_ptr<Service> service_;  // null but for a ps
};

}  // namespace tandem
