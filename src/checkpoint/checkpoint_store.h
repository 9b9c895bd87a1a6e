#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace tandem::internal {

struct CheckpointStoreOptions {
  // How many of the newest prune() leaves. 0: all.
  int keep = 3;

  // Of the others, prune() leaves the oldest, and then each that was saved this long after the last one left.
  // 0: none.
  std::chrono::seconds keep_every{0};

  // A restore passes over so many damaged checkpoints; more are an error: something is wrong that an older
  // checkpoint would not mend.
  int max_fallback = 2;

  // A secret of the cluster. With it checkpoints are signed, and those of others are refused: chunks have a
  // SHA-256 beside the crc32c, which is no secret's work, and COMMIT an HMAC. The same on every task.
  std::string key = {};

  // Null: the machine's own.
  std::shared_ptr<FileSystem> files = {};

  // Seconds since 1970; empty: the wall clock. Only keep_every looks at it.
  std::function<std::int64_t()> clock = {};
};

// What became of a save. A disk that is full or broken is no reason to stop training: the temporary is
// removed, the checkpoints before stay as they are, and the caller decides.
struct SaveResult {
  std::string error = {};  // one line; empty: saved, and will survive a crash of the machine
  std::string folder = {};
  std::uint64_t bytes = 0;

  bool ok() const { return error.empty(); }
};

struct SaveCounts {
  std::int64_t saved = 0;
  std::int64_t failed = 0;
  std::int64_t failed_in_a_row = 0;
};

// A save under way. `folder` is the name of the temporary, for the tasks that write shards; empty if it could
// not be made, for the reason in `error`.
struct PendingSave {
  CheckpointId id;
  std::string folder = {};
  std::string error = {};
};

struct ShardPlace {
  int index = 0;
  int count = 1;
};

struct Restored {
  CheckpointId id;
  // A line for each that was passed over: "checkpoint step 1200 g7 is damaged: shard-2-of-4 chunk 5
  // (layer3.0.conv1.weight), crc32c 1f000000 expected 9a000000; using step 1100 g7 (100 steps older)".
  std::vector<std::string> warnings = {};
};

struct Pruned {
  std::vector<CheckpointId> removed;
  std::vector<std::string> warnings;  // why something that should have gone is still there
};

// The checkpoints of one run, in one folder, each whole or not there:
//
//   step-000000001200.g000007/     a name that appears only when all of this is on the disk:
//     shard-0-of-2.safetensors     the tensors
//     shard-1-of-2.safetensors
//     manifest.json                sizes, checksums, tensors of each shard, and "meta"
//     COMMIT                       the digest of the manifest
//   latest                         the name of the newest: a hint for people and scripts, not synced
//   .tmp-*  .trash-*               a save or a removal under way, or cut short
//
// One task, the coordinator, calls begin(), commit(), prune(); each task that writes calls write_shard(), and
// its summary travels to the coordinator. The folder must be the same for all, on a file system they share.
// One save at a time, by one coordinator. Functions that read may be called from any thread, also during one.
class CheckpointStore {
 public:
  // Makes nothing; the folder comes with the first save.
  explicit CheckpointStore(std::string folder, CheckpointStoreOptions options = {});

  const std::string& folder() const { return folder_; }

  // One task, one shard, one call. Throws InvalidArgument as write_shard() and commit() do; a failure of the
  // file system is in the result.
  SaveResult save(const CheckpointId& id, std::span<const TensorBytes> tensors, const std::string& meta);

  // Makes the temporary, and removes those that dead processes left. Throws InvalidArgument if the id does
  // not fit into a name.
  PendingSave begin(const CheckpointId& id);

  // On any task, for the folder that begin() made: writes one shard and syncs it. A failure of the file
  // system is in the summary's error. Throws InvalidArgument, before anything is written, for tensors that
  // the format cannot hold.
  ShardSummary write_shard(const std::string& pending_folder, const ShardPlace& place,
                           std::span<const TensorBytes> tensors) const;

  // When every shard is written: manifest, COMMIT, the name, the hint. An older checkpoint of the same id is
  // replaced, in one step where the file system can do that, after this one has been read again. If a shard
  // has an error, or is not here, the save is abandoned and the error returned. Throws InvalidArgument, and
  // abandons, if meta is not a JSON object, shards are missing or a tensor is in two of them.
  SaveResult commit(PendingSave pending, std::vector<ShardSummary> shards, const std::string& meta);

  // Removes the temporary of a save that will not be committed, as well as it can. Counts as a failure.
  void abandon(const PendingSave& pending);

  SaveCounts counts() const;

  // Removes what is no longer to be kept, but only once the newest has been read again, from the disk, and is
  // whole; if it is not, the one before has to be, and so on. Reads nothing when there is nothing to remove.
  // Takes as long as reading a checkpoint: a save in a hurry leaves it for later. Does not throw.
  Pruned prune();

  // Removes every checkpoint, for a training that has ended. Does not throw.
  Pruned remove_all();

  // Newest first: whatever has the name of a checkpoint, whole or not. Empty if there is no folder. Throws
  // FileError.
  std::vector<CheckpointId> list() const;

  // Throws DataLoss if it is damaged, NotFound if it is not there.
  Checkpoint open(const CheckpointId& id) const;

  // Calls load() with the newest; if that or opening it throws DataLoss, with the one before, and so on. What
  // a damaged one has filled must not be used: load into fresh memory. Nothing if there is no checkpoint at
  // all. Throws NoUsableCheckpoint if more than max_fallback are damaged or no other is left; whatever else
  // load() throws is passed on.
  std::optional<Restored> restore(const std::function<void(const Checkpoint&)>& load) const;

  // The same for a coordinator that chooses for all: reads every byte of it, loads nothing.
  std::optional<Restored> find_whole() const;

 private:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void remove_leftovers();
  void remove_temporary(const std::string& full_path);
  SaveResult failed(const PendingSave& pending, const std::string& reason);
  void check_shards_are_here(const PendingSave& pending, const std::vector<ShardSummary>& shards) const;
  // Not synced.
  std::unique_ptr<WritableFile> write_file(const std::string& path, const std::string& text) const;
  void put_in_place(PendingSave& pending);
  void write_hint(const CheckpointId& id);
  std::vector<CheckpointId> superfluous(const std::vector<CheckpointId>& newest_first);
  std::optional<std::int64_t> saved_at(const CheckpointId& id);
  bool is_whole_on_disk(const CheckpointId& id, Pruned& result);
  void remove(const std::vector<CheckpointId>& ids, Pruned& result);

  std::string folder_;
  CheckpointStoreOptions options_;
  bool swept_ = false;
  mutable std::mutex mutex_;  // of what is below
  SaveCounts counts_;
  mutable std::set<CheckpointId> damaged_;
  std::set<CheckpointId> reread_;
  std::map<CheckpointId, std::int64_t> saved_at_;
};

}  // namespace tandem::internal
