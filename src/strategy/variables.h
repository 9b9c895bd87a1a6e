#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategy/remote_table.h"

namespace tandem::internal {

class SyncGroup;

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// One replica's tensors of a model, by name.
struct ReplicaTensors {
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  // Those that parameter servers have, and no replica. They take no part in what is read and written here.
  std::vector<std::shared_ptr<RemoteTable>> tables = {};
};

// Where the parameters of the replicas of one process live.
enum class Placement {
  kMirrored,  // a copy on each replica
  kCentral,   // one copy, on the CPU: CPU replicas alias it, GPU replicas have a cache of it that each update
              // refreshes
};

// Where the parameters of a model live if that is outside this process: with parameter servers. The copies
// here are of what was fetched last. In cross-replica context.
class VariableHome {
 public:
  virtual ~VariableHome() = default;

  // Before replicas compute: what was asked for in the meantime goes into every copy.
  virtual void settle() = 0;
  // The newest values go into every copy.
  virtual void fetch() = 0;
  // The copies were written to: what they hold is what holds.
  virtual void store() = 0;
  // If the tasks that have them are lost (something has thrown Unavailable): looks for them again from the
  // next step on, and gives them what the copies hold then.
  virtual void look_again() = 0;
};

// The variables of one model: one copy per local replica, one name each to the user.
//
// Parameters are equal on every replica after every step: as copies of their own, or as one. Floating-point
// buffers (batch norm's running statistics) are TensorFlow's ON_READ variables: each replica writes its own,
// and reading gives their mean over all replicas of all tasks, added in replica order. Of integer buffers,
// reading gives the first replica's. With several tasks, making and reading them are collectives.
class Variables {
 public:
  // Gives every copy on every task the first one's values. Throws InvalidArgument, naming the first
  // difference, if the copies do not have the same names, shapes and dtypes, or share memory. `tasks` is null
  // where there is one task, and must outlive this otherwise.
  explicit Variables(std::vector<ReplicaTensors> copies, Placement placement = Placement::kMirrored,
                     SyncGroup* tasks = nullptr);

  Placement placement() const { return placement_; }

  int replicas() const { return static_cast<int>(copies_.size()); }
  const ReplicaTensors& copy(int replica) const { return copies_[static_cast<std::size_t>(replica)]; }

  // The places in `parameters` of those that require gradients; tied weights (one tensor under several names)
  // once, under their first name.
  std::vector<std::size_t> trainable() const;

  // The same tables for every replica, of which each has its own end.
  const std::vector<std::shared_ptr<RemoteTable>>& tables(int replica = 0) const {
    return copy(replica).tables;
  }

  // Every parameter and buffer by name, as a user reads it: on the CPU, contiguous, not aliasing the
  // variables.
  std::map<std::string, at::Tensor> read() const;
  // Every copy gets these values; those that are not named keep theirs. Throws InvalidArgument, before
  // anything is changed, for a name, a shape or a kind of number that there is not.
  void write(const std::map<std::string, at::Tensor>& values);

  // Null, at first: they live here. It must outlive its stay.
  void set_home(VariableHome* home) { home_ = home; }
  // Unless they have moved since.
  void leave_home(const VariableHome* home) {
    if (home_ == home) home_ = nullptr;
  }
  bool has_home() const { return home_ != nullptr; }
  void settle() {
    if (home_) home_->settle();
  }
  void fetch() const {
    if (home_) home_->fetch();
  }
  void look_again() {
    if (home_) home_->look_again();
  }

  // Who counts the optimizer's steps; told by the first replica of this task, once for each. `counted`: how
  // many there have been in all, where that is known better elsewhere.
  using StepListener = std::function<void(const std::optional<std::int64_t>& counted)>;
  void on_step(StepListener listener) { stepped_ = std::move(listener); }
  void count_step(const std::optional<std::int64_t>& counted) const {
    if (stepped_) stepped_(counted);
  }

  // What read() does not tell: each local replica's own buffers, as "<name>@replica<i>", i counted over all
  // tasks. Empty where there is one replica. Nothing is exchanged.
  std::map<std::string, at::Tensor> own_buffers() const;
  // Of the values of all replicas, this task's take theirs. False, and nothing is changed, if they are not
  // those of exactly as many replicas with these buffers.
  bool write_own_buffers(const std::map<std::string, at::Tensor>& of_all_replicas);

 private:
  friend class BuffersAsRead;
  // Whether each replica's buffers are what reading them gives.
  bool reads_as_written() const { return replicas() == 1 && !tasks_; }
  std::vector<at::Tensor> read_buffers() const;
  // Every replica's buffers, by replica in the sync group; those of other tasks are on the CPU.
  std::vector<std::vector<at::Tensor>> all_buffers() const;
  void take_chiefs_values();
  std::string own_name(const std::string& buffer, int local_replica) const;

  std::vector<ReplicaTensors> copies_;
  Placement placement_;
  SyncGroup* tasks_;
  VariableHome* home_ = nullptr;
  StepListener stepped_;
};

// While it lives, every replica's buffers hold what reading them gives; then each replica gets its own back.
// Parameters are the newest.
class BuffersAsRead {
 public:
  explicit BuffersAsRead(Variables& variables);
  ~BuffersAsRead();
  BuffersAsRead(const BuffersAsRead&) = delete;
  BuffersAsRead& operator=(const BuffersAsRead&) = delete;

 private:
  Variables& variables_;
  std::vector<std::vector<at::Tensor>> own_;  // by replica
};

}  // namespace tandem::internal
