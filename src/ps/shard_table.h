#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ps/plan.h"
#include "ps/push_ledger.h"
#include "ps/shard_store.h"
#include "ps/staging.h"
#include "ps/staleness.h"
#include "ps/wire.h"

namespace tandem::internal::ps {

struct ShardTableOptions {
  // The updates of all live workers for a step are added, in the order of their numbers, and applied once.
  bool whole_steps = false;
  // Then: with so many of them; see WholeStep. They are added as they come.
  std::optional<std::size_t> aggregate = {};

  // Leave out gradients that are infinite or not numbers. Else they are applied, as TensorFlow does.
  bool reject_not_finite = false;
};

// Values of a shard as they were at one version, ready to be sent to any number of workers.
struct ShardCopy {
  std::uint64_t version = 0;
  WireType type = WireType::kFloat32;
  std::uint32_t crc = 0;
  Staging::Buffer buffer = {};
};

// What the ps holds: each shard with its lock, its version and its ledger. Everything that a push or a pull
// does to a shard is done here; who sent it, and over what, is not known here. Any thread, once it is ready.
class ShardTable {
 public:
  // `busy`: the workers that a whole step waits for, ascending; asked under a shard's lock.
  ShardTable(ShardStore& store, const ShardTableOptions& options,
             std::function<std::vector<int>(std::uint64_t step)> busy);
  ~ShardTable();

  // Makes room for the shards of the plan that are on `ps`. Alone, and not after it was ready. Throws what
  // the store throws, and InvalidArgument for a variable that no gradient can be sent for.
  void create(const PlacementPlan& plan, int ps, const std::string& optimizer);

  const PlacementPlan& plan() const { return *plan_; }
  const std::string& digest() const { return digest_; }
  const std::string& optimizer() const { return optimizer_; }
  int ps() const { return ps_; }
  // Of this ps, ascending.
  const std::vector<std::size_t>& ids() const { return ids_; }
  bool holds(std::size_t shard) const { return find(shard) != nullptr; }
  // Where the values of a snapshot go. Only before it is ready.
  std::span<std::byte> memory(std::size_t shard) { return store_.values(shard); }
  WireType type(std::size_t shard) const;

  // A worker's process comes; what it is told of each shard. Not admitted by any: empty.
  std::vector<HelloReply::Entry> admit(int worker, Incarnation incarnation, std::uint64_t oldest_seq);

  // What is wrong with an entry, before its payload is there: nothing, or a status that does not settle.
  struct Fault {
    Status status = Status::kApplied;
    std::string message = {};
    explicit operator bool() const { return status != Status::kApplied; }
  };
  Fault check(const Push::Entry& entry) const;
  Fault check(const Pull::Entry& entry) const;
  // Of tensors for all shards here but tables.
  Fault check(std::span<const ShardTensor> tensors) const;

  // What to do with the next bytes of a push.
  enum class Go {
    kTake,     // read the payload, and add()
    kDiscard,  // it is decided without it: settled() knows, or will
    kWait,     // another worker's comes first; ask again when something has changed
    kEarly,    // its step has not begun
  };
  Go begin(const Push& push, const Push::Entry& entry);

  // The payload is here, whole, and its checksum fits. `values`: in the shard's own type.
  void add(const Push& push, const Push::Entry& entry, std::span<const std::int64_t> row_ids,
           std::span<const std::byte> values);

  // What to answer, once it is settled or refused.
  std::optional<PushReplies::Entry> settled(const Push& push, const Push::Entry& entry);
  // Why a push was rejected by the store, if it was; forgotten then.
  std::string reason(std::size_t shard);

  // The workers that live have changed: a step may be whole now. True if one was.
  bool settle_whole_steps();
  // The step that all shards here have come to, with whole steps.
  std::uint64_t whole_step() const;
  void settle_closures_below(std::uint64_t id);

  // A copy of the newest version, if somebody has one.
  std::shared_ptr<const ShardCopy> newest_copy(const Pull::Entry& entry);
  // The bytes that a copy needs, and how it is made.
  std::size_t copy_bytes(const Pull::Entry& entry) const;
  std::shared_ptr<const ShardCopy> copy(const Pull::Entry& entry, Staging::Buffer buffer);
  // Into `buffer`, the rows asked for.
  std::shared_ptr<const ShardCopy> copy_rows(const Pull::Entry& entry, std::span<const std::int64_t> row_ids,
                                             Staging::Buffer buffer);
  std::uint64_t version(std::size_t shard) const;
  // Updates that the first shard here has seen, one per worker and step (with whole steps: one per step),
  // counted from what assign() said.
  std::uint64_t updates() const;

  // Other values and state, which have been checked, as a new version; pushes count as settled as before. A
  // fault if the store refuses the state: nothing is changed then.
  Fault assign(std::size_t shard, std::span<const std::byte> values, std::span<const StateTensor> state,
               std::optional<std::uint64_t> updates);
  // Tables are not assigned: they only count on from there.
  void set_updates_of_tables(std::uint64_t updates);
  // All of a shard as it is at one version: values, then state by name, in a buffer of bytes_with_state().
  // Nothing, and the buffer stays, if the state has grown meanwhile.
  std::size_t bytes_with_state(std::size_t shard);
  std::shared_ptr<const ShardCopy> copy_with_state(std::size_t shard, Staging::Buffer& buffer,
                                                   std::vector<ShardTensor>& tensors);

  // For snapshots: calls `use` under the shard's lock.
  struct Saved {
    std::uint64_t version = 0;
    std::uint64_t updates = 0;
    std::uint64_t step = 0;  // that whole steps go on with
    std::string ledger = {};
    std::vector<PushMark> marks = {};
    std::span<const std::byte> values = {};
    std::vector<StateTensor> state = {};
  };
  void save(std::size_t shard, const std::function<void(const Saved&)>& use);
  void set_durable(std::size_t shard, const std::vector<PushMark>& marks);
  // After create(): all but the values, which were read into memory(). Throws DataLoss.
  void restore(std::size_t shard, const Saved& saved);

 private:
  struct Held;
  struct Place;

  Place* find(std::size_t shard) const;
  Place& at(std::size_t shard) const;
  bool settle_if_whole(Place& place);
  void apply(Place& place, const Push& push, const Push::Entry& entry, std::span<const std::int64_t> row_ids,
             std::span<const std::byte> values);
  void hold(Place& place, const Push& push, const Push::Entry& entry, std::span<const std::int64_t> row_ids,
            std::span<const std::byte> values);
  bool is_due(const Place& place, int worker) const;

  ShardStore& store_;
  const ShardTableOptions options_;
  const std::function<std::vector<int>(std::uint64_t step)> busy_;
  std::optional<PlacementPlan> plan_;
  std::string digest_;
  std::string optimizer_;
  int ps_ = 0;
  std::vector<std::size_t> ids_;
  std::vector<std::unique_ptr<Place>> places_;  // by id; null: on another ps
};

}  // namespace tandem::internal::ps
