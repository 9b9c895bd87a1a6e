#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cluster_spec.h"
#include "tandem/communicator.h"
#include "tandem/task_server.h"

namespace tandem::internal {

struct GroupSetup;

struct TaskGroupSetup {
  ClusterSpec cluster = {};
  TaskId task = {};
  ServerOptions server = {};
  int data_port = 0;  // 0: any free one
  CommunicationOptions communication = {};
};

// The chief and the workers of a cluster, joined: they have started together, are connected for collectives,
// and know when one of them is lost. Sees no torch.
//
// Every task must issue the same collectives in the same order. When one throws, the group is of no further
// use.
class TaskGroup {
 public:
  // Listens, waits for the others and connects to them. Throws what TaskServer and join_group() throw.
  explicit TaskGroup(TaskGroupSetup setup);
  // In order, this task has finished; after a failure, or while an exception unwinds, it leaves the others,
  // which stop.
  ~TaskGroup();
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  bool is_chief() const { return rank() == 0; }
  const std::string& member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  const std::string& self() const { return member(rank()); }
  // What the chief offered under this name at the join; see ServerOptions::offer.
  const std::string& chiefs_offer(const std::string& name) const { return chiefs_offers_.at(name); }
  Communicator& communicator() { return *communicator_; }

  // Calls fn, which waits for a collective. If it fails because a task is gone, throws Unavailable with what
  // the control plane knows of it: which task, what evidence, at which step.
  void run(const std::function<void()>& fn);

  // An error of this task's own: stops the others, and tells them why. Errors that came out of the group
  // itself are known to them. The first one stays.
  void fail(const std::exception_ptr& error);

  // All tasks stop here, at the same step: whatever is thrown from now on, this one has finished.
  void stop_together() { stopped_together_ = true; }

  // For `tandem status`, and for the message when a task is lost.
  void set_progress(std::int64_t step, double examples_per_second);
  std::optional<LostTask> lost() const { return server_->lost(); }

 private:
  void connect(GroupSetup group, const CommunicationOptions& options);
  // Throws what the control plane knows of the loss, if it does within a moment.
  void throw_verdict() const;

  std::vector<std::string> members_;
  std::map<std::string, std::string> chiefs_offers_;
  std::optional<Communicator> communicator_;
  std::unique_ptr<TaskServer> server_;
  std::atomic<bool> failed_{false};
  bool stopped_together_ = false;
  std::atomic<std::int64_t> step_{0};
};

// The tasks that train in sync, by rank: chief, then workers.
std::vector<TaskId> training_tasks(const ClusterSpec& cluster);

}  // namespace tandem::internal
