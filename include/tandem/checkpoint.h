#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/model.h"
#include "tandem/monitor_mode.h"
#include "tandem/strategy.h"

namespace tandem {

namespace internal {
class CheckpointSaver;
}

struct CheckpointOptions {
  // So many of the newest are kept. 0: all.
  int max_to_keep = 3;

  // Of the older ones, one for each such time is kept as well. 0: none.
  double keep_checkpoint_every_n_hours = 0;

  // A restore passes over so many damaged ones; if more are, it throws NoUsableCheckpoint.
  int max_fallback = 2;

  // A disk that is full or broken costs a warning for each save. After so many in a row, an error that ends
  // the training. 0: never.
  int stop_after_failures = 0;

  // A file of mode 0600 with a secret, as `tandem certs token` makes: checkpoints are signed with it, and
  // those that are not are refused. Empty: no signature.
  std::string key_file = {};
};

// What a restore found.
struct RestoredCheckpoint {
  std::string path;
  std::int64_t global_step = 0;
};

// The checkpoints of a model in one folder, each whole or not there, whatever is killed when:
//
//   tandem::CheckpointManager checkpoints(model, "run/checkpoints");
//   if (auto restored = checkpoints.restore()) ...          // the newest that is whole
//   for (...) { step(); if (n % 100 == 0) checkpoints.save(); }
//
// One holds parameters, buffers, optimizer state, learning rate, global step, seed and generators, the places
// in tracked datasets, and, inside fit(), how far that is and what its callbacks remember. It does not depend
// on the strategy: saved under one it is restored under any other, with any number of replicas and tasks.
// fit() needs only the callback BackupAndRestore.
//
// Files are in the safetensors format; docs/saving.md shows the folder and how Python opens it. With several
// tasks each writes its part; every task must call save() and restore(), in the same order. Not thread-safe.
class CheckpointManager {
 public:
  // Makes nothing; the folder comes with the first save. Throws InvalidArgument for options that make no
  // sense, and as reading a secret does.
  CheckpointManager(Model model, std::string directory, CheckpointOptions options = {});
  // Waits for a save under way.
  ~CheckpointManager();
  CheckpointManager(CheckpointManager&&) noexcept;
  CheckpointManager& operator=(CheckpointManager&&) noexcept;

  // Saves and restores the place in it too, under a name that stays the same. It must outlive this.
  void track(const std::string& name, DistributedDataset& dataset);

  // Saves the model as it is now, and removes what is no longer to be kept. Returns the checkpoint's folder;
  // empty if the disk did not take it, which is logged.
  std::string save();

  // Returns as soon as the values are copied; a thread writes them. A save before is waited for. What several
  // tasks have written is committed between two steps of fit(), or by wait().
  void save_async();
  // Returns what save() would have.
  std::string wait();

  // Puts the model where the newest checkpoint has it. Damaged ones are passed over, with a line that says
  // what is wrong. Nothing if there is no checkpoint. Throws NoUsableCheckpoint if all that were tried are
  // damaged, InvalidArgument if it is of another model or optimizer.
  std::optional<RestoredCheckpoint> restore();

  // Folders, the oldest first; whole or not.
  std::vector<std::string> checkpoints() const;

 private:
  friend class BackupAndRestoreCallback;
  void remove_all();

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The folder of the newest checkpoint that is whole, every byte checked; nothing if there is none.
std::optional<std::string> latest_checkpoint(const std::string& directory);

struct BackupAndRestoreOptions {
  // With several tasks the same on all of them; best on a disk that they share.
  std::string backup_dir = {};

  // Save after so many steps, counted over epochs. Unset: at the end of each epoch.
  std::optional<std::int64_t> save_freq = {};
  // And whenever so long has passed since the last save. 0: never.
  std::chrono::milliseconds save_interval{0};

  // Remove them when the training has ended. False: they stay, and a training that is started again with the
  // same folder has nothing left to do.
  bool delete_checkpoint = true;

  // On SIGTERM all tasks finish the same step and save; fit() throws Preempted.
  bool save_before_preemption = true;

  CheckpointOptions checkpoints = {};
};

// Saves the training now and then, and lets a fit() that is started again with the same folder go on where it
// was: with a synchronous strategy, the same topology and the same program, to the last bit. Training waits
// only while the values are copied.
//
// Of other callbacks, what state() gives is saved; they must be the same in the same order.
std::shared_ptr<Callback> BackupAndRestore(BackupAndRestoreOptions options);

struct ModelCheckpointOptions {
  // "best.safetensors", "weights.{epoch:02d}-{val_loss:.2f}.safetensors": as Python's str.format fills it in,
  // epoch and batch counted from 1.
  std::string filepath = {};
  std::string monitor = "val_loss";
  MonitorMode mode = MonitorMode::kAuto;
  // Only when the monitored value is better than ever.
  bool save_best_only = false;
  std::optional<double> initial_value_threshold = {};
  // False: with the optimizer's state and the step, for Model::load(); the same kind of file.
  bool save_weights_only = false;
  // After so many batches, counted over epochs. Unset: after each epoch.
  std::optional<std::int64_t> save_freq = {};
};

// Keras's: writes the model to a file of its own, for later use; not what a killed training goes on from. The
// chief writes, atomically. Folders are made.
std::shared_ptr<Callback> ModelCheckpoint(ModelCheckpointOptions options);

}  // namespace tandem
