#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ps/shard_store.h"
#include "ps/staging.h"
#include "ps/wire.h"

namespace tandem::internal::ps {

// The tensors of whole shards as they come in, one shard after the other: there is room for all of a shard,
// it fills up tensor by tensor, and then the shard can be used as one.
class ShardIntake {
 public:
  // As fault_of() lets them through: in order, each shard beginning with its values.
  void begin(std::vector<ShardTensor> tensors);

  bool is_done() const { return first_ == tensors_.size(); }

  // The bytes that the next shard takes, and room for them.
  std::size_t room_needed() const { return offsets_.back(); }
  bool has_room() const { return has_room_; }
  void set_room(Staging::Buffer room);

  // The tensor that comes now, and where it goes.
  const ShardTensor& tensor() const { return tensors_[at_]; }
  std::span<std::byte> memory() const;
  // It is here. True if the shard is whole.
  bool advance();

  // The shard that is whole.
  std::size_t shard() const { return tensors_[first_].shard; }
  std::span<const std::byte> values() const { return part(0); }
  std::vector<StateTensor> state() const;
  // Its room goes back, and the next one comes.
  void next_shard();

  // Bytes that have not been taken, the tensor that comes now included.
  std::uint64_t rest() const;

 private:
  void lay_out();
  std::span<std::byte> part(std::size_t index) const;

  std::vector<ShardTensor> tensors_;
  std::size_t first_ = 0;             // of this shard
  std::size_t at_ = 0;                // the one that comes now
  std::vector<std::size_t> offsets_;  // of the shard's tensors in its room; the last: where they end
  Staging::Buffer room_;
  bool has_room_ = false;
};

}  // namespace tandem::internal::ps
