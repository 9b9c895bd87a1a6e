#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_store.h"
#include "strategy/strategy_impl.h"

namespace tandem::internal {

struct TrainingState;

struct CheckpointSaverOptions {
  CheckpointStoreOptions store = {};
  // How many saves in a row may fail before the training stops. 0: any number.
  int stop_after_failures = 0;
};

// What load() found.
struct LoadedCheckpoint {
  CheckpointId id = {};
  std::string folder = {};
  std::map<std::string, at::Tensor> tensors = {};  // of all tasks
  std::string meta = {};
};

// The checkpoints of a training, saved by all of its tasks together: each writes its part, on a thread of its
// own, and the chief commits the whole. Where the tasks have no disk in common, the chief writes all.
//
// save(), commit(), finish(), load() and remove_all() are collectives: every task must call them, in the same
// order, between steps. One save is under way at a time. A disk that fails costs a warning and that
// checkpoint, no more.
class CheckpointSaver {
 public:
  CheckpointSaver(std::shared_ptr<StrategyImpl> strategy, std::string folder,
                  CheckpointSaverOptions options = {});
  // Waits for this task's own writing; what was not committed then never is.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  const CheckpointStore& store() const { return store_; }

  // Returns when the writing has begun, after finish() of the save before. A lone task commits by itself;
  // with several, commit() or finish() does. Throws after too many failures.
  void save(std::int64_t step, TrainingState state);

  // Whether this task has written its part of a save that waits for commit().
  bool wrote_its_part() const;
  // When every task has: the chief commits, on its thread.
  void commit();

  // Returns when the save under way, if any, is committed or has failed. Where the last one is, the same on
  // every task; empty if it failed.
  std::string finish();

  // The newest whole one, read by the chief, for all tasks; nothing if there is none. Damaged ones are passed
  // over with a warning. Throws NoUsableCheckpoint, on every task alike.
  std::optional<LoadedCheckpoint> load();

  // All of them, after finish(). A lone damaged file system costs a warning.
  void remove_all();

 private:
  // A file to write.
  struct Shard {
    int index = 0;
    std::map<std::string, at::Tensor> tensors = {};
  };

  SyncGroup* tasks() const { return strategy_->tasks(); }
  void begin(std::int64_t step);
  bool is_common_disk() const;
  // What this task writes.
  std::vector<Shard> part_of(TrainingState state);
  std::vector<ShardSummary> write(const std::vector<Shard>& shards) const;
  void commit_on_disk(std::vector<ShardSummary> summaries);
  void report(const SaveResult& result);

  std::shared_ptr<StrategyImpl> strategy_;
  CheckpointSaverOptions options_;
  CheckpointStore store_;
  std::int64_t generation_ = 0;  // the chief's; 0: not looked for yet

  // The save under way. Its threads see what is above and these; finish() is between one save and the next.
  bool under_way_ = false;
  PendingSave pending_ = {};
  std::string meta_ = {};
  int num_shards_ = 2;
  std::string last_saved_ = {};  // where; empty: it failed
  std::string last_good_ = {};   // "step 1200 g7"
  std::future<std::vector<ShardSummary>> writing_ = {};
  std::future<void> committing_ = {};
};

}  // namespace tandem::internal
