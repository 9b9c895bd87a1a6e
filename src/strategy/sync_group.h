#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strategy/task_group.h"
#include "tandem/communicator.h"

namespace tandem::internal {

// A group of tasks, as the replicas of one of them see it: collectives on tensors.
//
// Every task must issue the same ones in the same order. When one throws, the group is of no further use:
// Unavailable names the task that was lost, Aborted the one that failed and why.
class SyncGroup {
 public:
  explicit SyncGroup(std::unique_ptr<TaskGroup> group) : group_(std::move(group)) {}

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  bool is_chief() const { return group_->is_chief(); }
  // "worker:1"
  const std::string& member(int rank) const { return group_->member(rank); }
  const std::string& self() const { return group_->self(); }
  Communicator& communicator() const { return group_->communicator(); }

  // The sum over the tasks, in place; any dtype and device.
  void all_reduce(const std::string& name, const at::Tensor& tensor);
  // Contiguous, on the CPU, of a dtype that travels (see wire_dtype()). Its memory is kept until it has
  // ended.
  Pending all_reduce_async(const std::string& name, const at::Tensor& tensor);
  void wait(const Pending& pending);

  // The chief's values on every task, in place.
  void broadcast(const std::string& name, const at::Tensor& tensor);

  // The chief's bytes on every task, whatever the others give. Two collectives.
  at::Tensor broadcast_bytes(const std::string& name, const at::Tensor& bytes);
  std::string broadcast_text(const std::string& name, const std::string& text);

  // Every task's tensor, by rank, on the CPU. All have the same shape and dtype.
  std::vector<at::Tensor> all_gather(const std::string& name, const at::Tensor& tensor);
  // Tensors of any shape (8 dimensions at most) and dtype, or none. Two collectives.
  std::vector<at::Tensor> all_gather_any(const std::string& name, const at::Tensor& tensor);
  std::vector<std::string> all_gather_text(const std::string& name, const std::string& text);

  // The sums over the tasks, added in rank order.
  std::vector<std::int64_t> sum(const std::string& name, std::vector<std::int64_t> values);

  // See TaskGroup.
  void fail(const std::exception_ptr& error) { group_->fail(error); }
  void stop_together() { group_->stop_together(); }

  // Gradients have been summed: the run() that this belongs to is an optimizer step.
  void gradients_met() { gradients_met_ = true; }
  // A run() is over: if it was an optimizer step, on this many rows in all, tells `tandem status`, and
  // whoever is to say when a task was lost.
  void ran(std::int64_t step, std::int64_t rows);

 private:
  // Memory of collectives under way; it must outlive the communicator.
  std::deque<std::pair<Pending, at::Tensor>> under_way_;
  std::unique_ptr<TaskGroup> group_;
  std::atomic<bool> gradients_met_{false};
  std::chrono::steady_clock::time_point last_step_ = {};
};

// What a tensor of this dtype is converted to if it cannot travel as it is.
at::ScalarType wire_dtype(at::ScalarType dtype);

}  // namespace tandem::internal
