#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ps/closure_dispatcher.h"
#include "ps/closure_server.h"

namespace tandem::internal {

// What a ClusterCoordinator needs of the strategy that it stands on. A task is either the coordinator or one
// of the workers; what the other kind is asked is never asked of it.
class ClosureHost {
 public:
  virtual ~ClosureHost() = default;

  virtual bool is_coordinator() const = 0;
  virtual int num_workers() const = 0;
  // For messages: "worker:1".
  virtual std::string worker_name(int worker) const = 0;

  // The coordinator's.

  // As ClosureDispatcherOptions has them. locate() is called by several threads at once.
  virtual std::optional<ps::ClosureEndpoint> locate(int worker, std::string& why) = 0;
  virtual std::string cluster_id() const = 0;
  virtual bool encrypts() const = 0;
  // Above all closures that the parameter servers have seen; 1 if they are new.
  virtual std::uint64_t first_closure() = 0;

  // A worker's.

  virtual int worker() const = 0;
  // It listens since before this task has joined the cluster, so that the coordinator can be told where.
  virtual ps::ClosureServer& closure_server() = 0;
  // Pushes from now on belong to this closure: (closure, 0), (closure, 1), ... With it travels the number
  // below which all closures are over. 0: they belong to none. Called on the thread that runs the closure.
  virtual void set_closure(std::uint64_t closure, std::uint64_t settled_below) = 0;
};

}  // namespace tandem::internal
