#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ps/plan.h"
#include "ps/ps_client.h"
#include "strategy/flat_buffers.h"
#include "strategy/optimizer_slots.h"

namespace tandem::internal {

// How the slots of flat buffers are the variables of a plan, and shards ranges of the buffers: nothing is
// copied to send it. A shard has its values in the order in which they lie here, which is the same on all
// workers; the optimizer, which works element by element, does not mind.
//
// Tables are the plan's last variables. Nothing of them lies in buffers: what is said of slots does not
// concern them.
class PsLayout {
 public:
  // Throws InvalidArgument, naming the variable, for one that is to be cut but whose rows do not lie one
  // behind the other, and what PlacementPlan throws.
  PsLayout(const FlatBuffers& buffers, const std::vector<ps::PlanVariable>& tables,
           const ps::PlanOptions& options);

  const ps::PlacementPlan& plan() const { return plan_; }

  // The shards of slots come first, then those of tables.
  std::size_t num_slot_shards() const { return num_slot_shards_; }
  // The id of the first shard of a table; see PlacementPlan::shards_of() for how many there are.
  std::size_t first_shard_of_table(std::size_t table) const;
  std::span<const ps::Shard> shards_of_table(std::size_t table) const;

  // The bytes of a shard in buffers like those of the groups.
  std::span<std::byte> bytes(const std::vector<at::Tensor>& by_group, std::size_t shard) const;
  // The slot that a shard is of.
  std::size_t slot_of(std::size_t shard) const {
    return static_cast<std::size_t>(plan_.shards()[shard].variable);
  }

  // An optimizer's state of one parameter, as its shards have it, and the reverse.
  std::map<std::string, at::Tensor> state_of(std::size_t slot,
                                             std::span<const ps::ShardImage> by_shard) const;
  void set_state(std::size_t slot, const std::map<std::string, at::Tensor>& state,
                 std::span<ps::ShardImage> by_shard) const;

 private:
  std::int64_t row_elements(std::size_t slot) const;

  const FlatBuffers& buffers_;
  ps::PlacementPlan plan_;
  std::size_t num_slot_shards_ = 0;
};

}  // namespace tandem::internal
