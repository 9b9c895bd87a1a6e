#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/checkpoint_store.h"
#include "ps/shard_table.h"
#include "ps/staging.h"

namespace tandem::internal::ps {

// The snapshots of one ps, in a folder of its own: values, optimizer state, versions and ledgers of all its
// shards, each shard as it was at one moment. One that is cut short is not there (see checkpoint_store.h).
//
// One thread at a time.
class Snapshots {
 public:
  Snapshots(std::string folder, int ps);

  // Shards are copied one after the other, under their locks, into `staging`; nobody waits for the disk. The
  // one exception is a shard that with its state is larger than all of `staging`: it is written under its
  // lock. Afterwards the ledgers know what is durable. The error if it failed, else empty.
  std::string save(ShardTable& table, Staging& staging, const std::set<int>& finished,
                   const std::function<bool()>& stop);

  // Fills the table from the newest that is whole, and returns the workers that had finished. Nothing if
  // there is none. Throws NoUsableCheckpoint if there are some, but too many damaged, and FailedPrecondition
  // for those of another ps.
  std::optional<std::set<int>> load(ShardTable& table);

  std::uint64_t saved() const { return saved_; }

 private:
  CheckpointStore store_;
  const int ps_;
  std::int64_t next_ = 1;  // the number of the next snapshot: the step of a checkpoint
  std::uint64_t saved_ = 0;
};

}  // namespace tandem::internal::ps
