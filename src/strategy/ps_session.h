#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ps/ps_client.h"
#include "strategy/closure_host.h"
#include "tandem/cluster_spec.h"
#include "tandem/task_server.h"

namespace tandem::internal {

// What a ps offers to those who look for it, and a worker to its coordinator.
inline constexpr const char* kPsAddress = "ps_address";
inline constexpr const char* kClosureAddress = "closure_address";

// For every task of a cluster with parameter servers: nobody waits for all, nobody's loss stops the others,
// and all must have been told the same of how workers wait for each other.
ServerOptions ps_server_options(const ClusterSpec& cluster, ServerOptions options,
                                std::optional<int> max_staleness, std::optional<int> aggregate);

// A chief's or worker's place in a cluster with parameter servers: knows where these are, and who else is
// there. Sees no torch. Any thread.
//
// If the cluster has a chief, that one can be the coordinator of the workers. Where it trains like a worker,
// what concerns closures is never asked for.
class PsSession final : public ClosureHost {
 public:
  // Listens and finds every ps; options: of ps_server_options(). Throws what TaskServer throws, and
  // Unavailable, naming the ps, if one has not come within options.join_timeout.
  PsSession(const ClusterSpec& cluster, const TaskId& task, ServerOptions options);
  // In order, this task has finished; while an exception unwinds, it leaves.
  ~PsSession() override;
  PsSession(const PsSession&) = delete;

  // Its number with every ps, among those that compute: chief, then workers.
  int number() const { return number_; }
  int num_computing() const { return static_cast<int>(tasks_.size()); }
  int num_ps() const { return static_cast<int>(servers_.size()); }
  bool is_chief() const { return number_ == 0; }
  bool has_chief_job() const { return tasks_.front().type == "chief"; }
  const std::string& name() const { return name_; }

  // A number that all who come while ps 0 lives have in common, and that is another in the next run.
  std::uint64_t common_seed() const { return common_seed_; }

  // With the places of the ps tasks, as they are whenever it is asked.
  ps::PsClientOptions client_options() const;

  // For `tandem status`, and for those who wait for this task.
  void set_step(std::int64_t step);
  void set_examples_per_second(double rate);
  std::int64_t step() const { return step_; }

  // This task is through with a training. The chief waits until the others that are here are too, so that
  // what it saves then is the end of it: as long as they get on, and no longer than `patience` if they do
  // not.
  void end_round(std::chrono::milliseconds patience);

  // Which closure the next push belongs to, if any. One thread.
  ps::PushOrder next_push();

  // ClosureHost. Workers count from 0, without the chief.
  bool is_coordinator() const override { return is_chief(); }
  int num_workers() const override { return num_computing() - 1; }
  std::string worker_name(int worker) const override {
    return tasks_[static_cast<std::size_t>(worker) + 1].name();
  }
  std::optional<ps::ClosureEndpoint> locate(int worker, std::string& why) override;
  std::string cluster_id() const override { return server_->cluster_id(); }
  bool encrypts() const override { return server_->security_mode() == "tls"; }
  std::uint64_t first_closure() override;
  int worker() const override { return number_ - 1; }
  ps::ClosureServer& closure_server() override { return *closures_; }
  void set_closure(std::uint64_t closure, std::uint64_t settled_below) override;

 private:
  // What a task that is here offers under this name, and its key.
  std::optional<std::pair<std::string, std::string>> find(const TaskId& task, const char* offered,
                                                          std::string& why) const;
  // Those that have not been through as many trainings as this task, and where they are.
  std::vector<std::pair<std::string, std::int64_t>> behind() const;

  const std::vector<TaskId> tasks_;  // that compute
  const std::vector<TaskId> servers_;
  const int number_;
  const std::string name_;
  std::unique_ptr<ps::ClosureServer> closures_;  // of a worker with a chief
  std::unique_ptr<TaskServer> server_;
  std::uint64_t common_seed_ = 0;
  std::uint64_t rounds_ = 0;
  std::atomic<std::int64_t> step_{0};
  std::atomic<double> examples_per_second_{0};
  ps::PushOrder closure_ = {};
};

}  // namespace tandem::internal
