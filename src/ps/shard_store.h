#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ps/plan.h"
#include "ps/wire.h"

namespace tandem::internal::ps {

// What one push, or the sum of those of a whole step, does to a shard. Everything has been checked: the size
// is that of the shard, rows ascend and exist, checksums fit.
struct Update {
  PayloadKind kind = PayloadKind::kDense;      // kDense or kRows
  std::span<const std::int64_t> row_ids = {};  // of kRows
  std::span<const std::byte> values = {};      // in the shard's own dtype, row-major, aligned for it
  double learning_rate = 0;                    // the pushing worker's, at its step
  std::uint64_t step = 0;
};

// A piece of an optimizer's state, or anything else that must come back with a shard.
struct StateTensor {
  std::string name = {};   // "exp_avg"; unique within the shard, without slashes
  std::string dtype = {};  // as safetensors names it
  std::vector<std::int64_t> shape = {};
  std::span<const std::byte> bytes = {};
};

// The shards of one ps: values and optimizer state. This is what the ps room asks of whoever updates
// variables; libtorch's optimizers sit behind it, and nothing in front of it knows torch.
//
// Which threads: the service holds a lock of its own for each shard around every call that names one, so
// there is one at a time for a shard, and several at once for different ones. create() is alone.
class ShardStore {
 public:
  virtual ~ShardStore() = default;

  // Makes room for the shards that `plan` places on `ps`, forgetting what was there. `optimizer` says how
  // they are to be updated, in a text that only the store and the chief understand. Tables get their first
  // values. For what else there is, and for all that comes from a snapshot, the service then calls
  // restore_state() and fills values() before anything else is asked. Throws InvalidArgument, with one line
  // for the chief, if it cannot serve such a model.
  virtual void create(const PlacementPlan& plan, int ps, const std::string& optimizer) = 0;

  // The memory of a shard, of exactly Shard::bytes bytes, row-major in the variable's dtype. It stays where
  // it is until the next create(). The service writes to it only right after create() or restore_state().
  virtual std::span<std::byte> values(std::size_t shard) = 0;

  // Changes values and state. The update's memory is the service's; the store must not keep it. If this
  // throws, the push counts as rejected, with the error as its reason; the shard must be unchanged then.
  virtual void apply(std::size_t shard, const Update& update) = 0;

  // What a snapshot must hold beside the values. The bytes stay valid until the next apply() to this shard.
  virtual std::vector<StateTensor> state(std::size_t shard) = 0;
  // What state() said when a snapshot or a checkpoint was taken, by name. Nothing: as before the first
  // update. Throws DataLoss if that cannot be; the shard must be unchanged then.
  virtual void restore_state(std::size_t shard, std::span<const StateTensor> state) = 0;
};

}  // namespace tandem::internal::ps
