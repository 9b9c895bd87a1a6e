#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "ps/shard_store.h"

namespace torch::optim {
class Optimizer;
}

namespace tandem::internal {

// The shards of a parameter server, updated by libtorch's optimizers: one of its own for each shard, so that
// shards are updated at the same time.
//
// Rows of an embedding are updated alone, with their part of the optimizer's state, as TensorFlow's sparse
// updates are: momentum and decay of the other rows wait until their turn comes.
class TorchShardStore final : public ps::ShardStore {
 public:
  TorchShardStore();
  ~TorchShardStore() override;

  void create(const ps::PlacementPlan& plan, int ps, const std::string& optimizer) override;
  std::span<std::byte> values(std::size_t shard) override;
  void apply(std::size_t shard, const ps::Update& update) override;
  std::vector<ps::StateTensor> state(std::size_t shard) override;
  void restore_state(std::size_t shard, std::span<const ps::StateTensor> state) override;

 private:
  struct Held;

  Held& held(std::size_t shard);
  void apply_dense(Held& mine, const at::Tensor& gradient);
  void apply_rows(Held& mine, const at::Tensor& gradient, std::span<const std::int64_t> rows);

  std::vector<std::unique_ptr<Held>> shards_;  // by id; null for those of other servers
};

}  // namespace tandem::internal
