#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/ports.h"
#include "tandem/multi_worker_mirrored_strategy.h"

namespace tandem::testing_support {

// Calls fn(strategy, rank) on one thread per task: several tasks of a cluster, each with its own server,
// connections and replicas, in this process.
inline void run_tasks(int tasks, int replicas, const CommunicationOptions& communication,
                      const std::function<void(Strategy&, int)>& fn) {
  const auto reserved = internal::ReservedPorts::choose("127.0.0.1", tasks);
  std::vector<std::string> hosts;
  for (const int port : reserved.ports()) hosts.push_back("127.0.0.1:" + std::to_string(port));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(tasks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < tasks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        MultiWorkerMirroredOptions options{
            .cluster =
                ResolvedCluster{.cluster = ClusterSpec({{"worker", hosts}}), .task = TaskId{"worker", rank}},
            .threads_per_replica = 1,
            .communication = communication};
        for (int i = 0; i < replicas; ++i) options.devices.push_back("/cpu:" + std::to_string(i));
        MultiWorkerMirroredStrategy strategy(options);
        fn(strategy, rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace tandem::testing_support
