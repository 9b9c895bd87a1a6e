#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/ps_client.h"
#include "tandem/cluster_resolver.h"
#include "tandem/cluster_spec.h"
#include "tandem/task_server.h"

namespace tandem::internal {

// What a ps offers to those who look for it.
inline constexpr const char* kPsAddress = "ps_address";

// The tasks of a cluster with parameter servers that compute: chief, then workers. Their places here are
// their numbers with every ps.
std::vector<TaskId> computing_tasks(const ClusterSpec& cluster);

// So that nobody waits for all, and nobody's loss stops the others.
void make_all_optional(const ClusterSpec& cluster, ServerOptions& options);

// A chief's or worker's place in a cluster with parameter servers: knows where these are, and who else is
// there. Sees no torch. Any thread.
class PsSession {
 public:
  // Listens and finds every ps. Throws what TaskServer throws, and Unavailable, naming the ps, if one has not
  // come within options.join_timeout.
  PsSession(const ClusterSpec& cluster, const TaskId& task, ServerOptions options);
  // In order, this task has finished; while an exception unwinds, it leaves.
  ~PsSession();
  PsSession(const PsSession&) = delete;

  int worker() const { return worker_; }
  int num_workers() const { return static_cast<int>(workers_.size()); }
  int num_ps() const { return static_cast<int>(servers_.size()); }
  bool is_chief() const { return worker_ == 0; }
  const std::string& name() const { return name_; }

  // A number that all who come while ps 0 lives have in common, and that is another in the next run.
  std::uint64_t common_seed() const { return common_seed_; }

  // With the places of the ps tasks, as they are whenever it is asked.
  ps::PsClientOptions client_options() const;

  // For `tandem status`, and for those who wait for this task.
  void set_step(std::int64_t step) {
    step_ = step;
    server_->set_progress(step_, examples_per_second_);
  }
  void set_examples_per_second(double rate) {
    examples_per_second_ = rate;
    server_->set_progress(step_, examples_per_second_);
  }
  std::int64_t step() const { return step_; }

  // This task is through with a training. The chief waits until the others that are here are too, so that
  // what it saves then is the end of it: as long as they get on, and no longer than `patience` if they do
  // not.
  void end_round(std::chrono::milliseconds patience);
  std::uint64_t rounds() const { return rounds_; }

 private:
  // The workers that have not been through as many trainings as this task, and where they are.
  std::vector<std::pair<std::string, std::int64_t>> behind() const;

  const std::vector<TaskId> workers_;
  const std::vector<TaskId> servers_;
  const int worker_;
  const std::string name_;
  std::unique_ptr<TaskServer> server_;
  std::uint64_t common_seed_ = 0;
  std::uint64_t rounds_ = 0;
  std::atomic<std::int64_t> step_{0};
  std::atomic<double> examples_per_second_{0};
};

}  // namespace tandem::internal
