#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/batch.h"
#include "tandem/device.h"

namespace tandem {

class Strategy;

namespace internal {
class StrategyImpl;
}

enum class ReduceOp { kSum, kMean };

// One value for each local replica, in replica order: what Strategy::run() returns, and an argument that it
// hands out component by component. values() is TensorFlow's experimental_local_results.
template <typename T>
class PerReplica {
 public:
  PerReplica() = default;
  explicit PerReplica(std::vector<T> values) : values_(std::move(values)) {}

  std::size_t size() const { return values_.size(); }
  const T& operator[](std::size_t replica) const { return values_[replica]; }
  T& operator[](std::size_t replica) { return values_[replica]; }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

// A global batch, cut into one piece per replica. A piece may have no rows.
class DistributedBatch : public PerReplica<Batch> {
 public:
  DistributedBatch() = default;
  DistributedBatch(std::vector<Batch> pieces, std::int64_t global_rows)
      : PerReplica(std::move(pieces)), global_rows_(global_rows) {}

  // Rows of the whole step, over all replicas of all tasks.
  std::int64_t global_rows() const { return global_rows_; }

 private:
  std::int64_t global_rows_ = 0;
};

// What the function given to Strategy::run() knows of the replica it runs on. Valid during that call only.
class ReplicaContext {
 public:
  // TensorFlow's replica_id_in_sync_group: 0 to num_replicas_in_sync() - 1.
  int id() const { return id_; }
  // Its place among the replicas of this process.
  int local_id() const { return local_id_; }
  int num_replicas_in_sync() const;
  const Device& device() const { return device_; }

  // Rows of this replica's piece and of the whole step, if run() was given a DistributedBatch; else 0.
  std::int64_t local_rows() const { return local_rows_; }
  std::int64_t global_rows() const { return global_rows_; }

  // mean_loss x local rows / global rows: what to call backward on, so that the summed gradients are those of
  // the mean over the global batch, whatever the sizes of the pieces. Throws FailedPrecondition if run() was
  // given no DistributedBatch.
  at::Tensor scale(const at::Tensor& mean_loss) const;

  // The tensor summed (or averaged) over the replicas, added in replica order; every replica must call it
  // alike, with the same shape and dtype. Blocks until all have; throws Aborted if another replica fails
  // meanwhile. Differentiable: the gradient of a sum over replicas is the sum of their gradients, so backward
  // is a collective too.
  at::Tensor all_reduce(ReduceOp op, const at::Tensor& tensor);

  // All replicas' tensors one after the other along an axis, in replica order; their sizes may differ along
  // that axis only. As all_reduce() otherwise. Differentiable: each replica gets back its part of the
  // gradient of the whole, summed over the replicas.
  at::Tensor all_gather(const at::Tensor& tensor, std::int64_t axis = 0);

  // The replicas of this task stop, and fn(strategy, args...) is called once, in cross-replica context, with
  // a PerReplica of each argument. Gives every replica what fn returns; of a PerReplica its own component.
  // Every replica must call it. Not with run() inside.
  template <typename F, typename... Args>
  auto merge_call(F&& fn, const Args&... args);

  // For the rooms above.
  internal::StrategyImpl& strategy() const { return strategy_; }

 private:
  friend class internal::StrategyImpl;
  ReplicaContext(internal::StrategyImpl& strategy, int id, int local_id, Device device)
      : strategy_(strategy), id_(id), local_id_(local_id), device_(std::move(device)) {}

  using Merged = std::function<std::shared_ptr<void>(const Strategy&, const std::vector<const void*>& laid)>;
  // `mine` of all replicas, handed to one call of fn, whose result all get.
  std::shared_ptr<void> merge(const void* mine, const Merged& fn);

  internal::StrategyImpl& strategy_;
  int id_;
  int local_id_;
  Device device_;
  std::int64_t local_rows_ = 0;
  std::int64_t global_rows_ = 0;
};

// The replica that this thread is running, inside Strategy::run(); null elsewhere.
ReplicaContext* get_replica_context();

}  // namespace tandem
