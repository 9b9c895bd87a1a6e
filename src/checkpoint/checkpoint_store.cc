#include "checkpoint/checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace tandem::internal {
namespace {

constexpr const char* kTemporary = ".tmp-";
constexpr const char* kTrash = ".trash-";
constexpr const char* kHint = "latest";

// Written in pieces that are still in the processor's cache after their checksum.
constexpr std::size_t kPiece = std::size_t{256} << 10;
constexpr std::size_t kMostPieces = 64;

std::string without_slashes_at_the_end(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.empty() ? "." : path;
}

// Collects small pieces and cuts large ones, so that each write is worth its call.
class ShardWriter {
 public:
  ShardWriter(WritableFile& file, ChunkChecksums& checksums) : file_(file), checksums_(checksums) {}

  void add(Bytes bytes) {
    while (!bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), kPiece - collected_);
      pieces_.push_back(bytes.first(n));
      collected_ += n;
      bytes = bytes.subspan(n);
      if (collected_ == kPiece || pieces_.size() == kMostPieces) write();
    }
  }

  void write() {
    for (const Bytes piece : pieces_) checksums_.update(piece);
    file_.append(pieces_);
    pieces_.clear();
    collected_ = 0;
  }

 private:
  WritableFile& file_;
  ChunkChecksums& checksums_;
  std::vector<Bytes> pieces_;
  std::size_t collected_ = 0;
};

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, CheckpointStoreOptions options)
    : folder_(without_slashes_at_the_end(std::move(folder))), options_(std::move(options)) {
  if (!options_.files) options_.files = std::make_shared<PosixFileSystem>();
  if (!options_.clock) {
    options_.clock = [] {
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      return static_cast<std::int64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
    };
  }
}

SaveResult CheckpointStore::save(const CheckpointId& id, std::span<const TensorBytes> tensors,
                                 const std::string& meta) {
  const PendingSave pending = begin(id);
  if (pending.folder.empty()) return {.error = pending.error};
  std::vector<ShardSummary> shards;
  try {
    shards.push_back(write_shard(pending.folder, {}, tensors));
  } catch (const InvalidArgument&) {
    abandon(pending);
    throw;
  }
  return commit(pending, std::move(shards), meta);
}

PendingSave CheckpointStore::begin(const CheckpointId& id) {
  check_id(id);
  PendingSave pending{.id = id, .folder = kTemporary + random_suffix()};
  try {
    create_folders(*options_.files, folder_);
    if (!std::exchange(swept_, true)) remove_leftovers();
    options_.files->create_folder(path(pending.folder));
  } catch (const FileError& error) {
    const SaveResult result = failed(pending, error.what());
    return {.id = id, .error = result.error};
  }
  return pending;
}

void CheckpointStore::remove_leftovers() {
  for (const FolderEntry& entry : options_.files->list(folder_)) {
    if (!entry.name.starts_with(kTemporary) && !entry.name.starts_with(kTrash)) continue;
    try {
      remove_tree(*options_.files, entry, path(entry.name));
    } catch (const FileError& error) {  // it takes room, and does no harm
      log_warning("{}", error.what());
    }
  }
}

ShardSummary CheckpointStore::write_shard(const std::string& pending_folder, const ShardPlace& place,
                                          std::span<const TensorBytes> tensors) const {
  if (!pending_folder.starts_with(kTemporary) || pending_folder.find('/') != std::string::npos) {
    throw InvalidArgument(fmt::format("\"{}\" is not the temporary of a save", pending_folder));
  }
  SafetensorsLayout layout = lay_out_safetensors(tensors, {{"format", "pt"}});
  ShardSummary summary{.index = place.index, .count = place.count};
  try {
    const auto file = options_.files->create_file(path(pending_folder + "/" + summary.file()));
    ChunkChecksums checksums(!options_.key.empty());
    ShardWriter writer(*file, checksums);
    writer.add(std::as_bytes(std::span(layout.beginning)));
    for (const std::size_t i : layout.order) writer.add(tensors[i].bytes);
    writer.write();
    file->sync();
    summary.bytes = layout.file_bytes;
    checksums.finish_into(summary);
    summary.tensors = std::move(layout.entries);
  } catch (const FileError& error) {
    summary.error = error.what();
  }
  return summary;
}

SaveResult CheckpointStore::commit(PendingSave pending, std::vector<ShardSummary> shards,
                                   const std::string& meta) {
  for (const ShardSummary& shard : shards) {
    if (!shard.error.empty()) return failed(pending, fmt::format("{}: {}", shard.name(), shard.error));
  }
  try {
    std::ranges::sort(shards, {}, &ShardSummary::index);
    const Manifest manifest{pending.id, options_.clock(), std::move(shards), meta};
    const std::string text = make_manifest(manifest);
    check_shards_are_here(pending, manifest.shards);
    const std::string temporary = path(pending.folder);
    const auto manifest_file = write_file(temporary + "/manifest.json", text);
    const auto commit_file = write_file(temporary + "/COMMIT", make_commit(text, options_.key));
    manifest_file->sync();
    commit_file->sync();
    options_.files->sync_folder(temporary);
    put_in_place(pending);
    write_hint(pending.id);
    SaveResult result{.folder = path(pending.id.folder())};
    for (const ShardSummary& shard : manifest.shards) result.bytes += shard.bytes;
    const std::lock_guard lock(mutex_);
    ++counts_.saved;
    counts_.failed_in_a_row = 0;
    damaged_.erase(pending.id);
    reread_.erase(pending.id);
    saved_at_[pending.id] = manifest.saved_at;
    return result;
  } catch (const InvalidArgument&) {
    abandon(pending);
    throw;
  } catch (const Error& error) {  // FileError, or what is here is not what was written
    return failed(pending, error.what());
  }
}

// Each task has written its own; whether all wrote to the same place shows only here.
void CheckpointStore::check_shards_are_here(const PendingSave& pending,
                                            const std::vector<ShardSummary>& shards) const {
  for (const ShardSummary& shard : shards) {
    if (!options_.key.empty() && shard.sha256.empty()) {
      throw InvalidArgument(
          fmt::format("{} was written without the key: give it to every task", shard.name()));
    }
    try {
      const auto bytes = options_.files->open_file(path(pending.folder + "/" + shard.file()))->size();
      if (bytes == shard.bytes) continue;
      throw DataLoss(
          fmt::format("{} has {} bytes in \"{}\", {} where it was written: is the folder on a file system "
                      "that all tasks share?",
                      shard.name(), bytes, folder_, shard.bytes));
    } catch (const FileError& error) {
      if (error.reason() != ENOENT) throw;
      throw DataLoss(
          fmt::format("{} was written by its task, but is not in \"{}\" here: is the folder on a file system "
                      "that all tasks share?",
                      shard.name(), folder_));
    }
  }
}

std::unique_ptr<WritableFile> CheckpointStore::write_file(const std::string& path,
                                                          const std::string& text) const {
  auto file = options_.files->create_file(path);
  const Bytes bytes = std::as_bytes(std::span(text));
  file->append({&bytes, 1});
  return file;
}

// Clears the pending folder's name once that is no longer the new checkpoint's.
void CheckpointStore::put_in_place(PendingSave& pending) {
  FileSystem& files = *options_.files;
  const std::string temporary = path(pending.folder);
  const std::string final_path = path(pending.id.folder());
  try {
    files.rename(temporary, final_path);
    pending.folder.clear();
    return files.sync_folder(folder_);
  } catch (const FileError& error) {
    const bool taken = error.reason() == ENOTEMPTY || error.reason() == EEXIST;
    if (!taken || pending.folder.empty()) throw;
  }

  // The step was saved before: the one that has the name goes only if this one reads back.
  Checkpoint(files, temporary, options_.key).verify(Checkpoint::From::kDisk);
  std::string old = temporary;
  if (!files.exchange(temporary, final_path)) {
    old = path(kTrash + random_suffix());
    files.rename(final_path, old);
    try {
      files.rename(temporary, final_path);
    } catch (const FileError&) {
      files.rename(old, final_path);
      throw;
    }
  }
  pending.folder.clear();
  files.sync_folder(folder_);
  remove_temporary(old);
}

// Only a hint: a failure here is no failure of the save, and nothing is synced for it.
void CheckpointStore::write_hint(const CheckpointId& id) {
  const std::string beside = path(kTemporary + random_suffix());
  try {
    write_file(beside, id.folder() + "\n");
    options_.files->rename(beside, path(kHint));
  } catch (const FileError& error) {
    log_warning("{}", error.what());
    try {
      options_.files->remove_file(beside);
    } catch (const FileError&) {
    }
  }
}

void CheckpointStore::abandon(const PendingSave& pending) {
  failed(pending, {});
}

SaveResult CheckpointStore::failed(const PendingSave& pending, const std::string& reason) {
  if (!pending.folder.empty()) remove_temporary(path(pending.folder));
  const std::lock_guard lock(mutex_);
  ++counts_.failed;
  ++counts_.failed_in_a_row;
  return {.error = fmt::format("checkpoint {} was not saved: {}", pending.id.text(), reason)};
}

void CheckpointStore::remove_temporary(const std::string& full_path) {
  try {
    remove_tree(*options_.files, {{}, FolderEntry::Kind::kFolder}, full_path);
  } catch (const FileError&) {  // it takes room until the next start, and does no harm
  }
}

SaveCounts CheckpointStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<CheckpointId> CheckpointStore::list() const {
  std::vector<CheckpointId> ids;
  try {
    for (const FolderEntry& entry : options_.files->list(folder_)) {
      const auto id = CheckpointId::parse(entry.name);
      if (id && entry.kind == FolderEntry::Kind::kFolder) ids.push_back(*id);
    }
  } catch (const FileError& error) {
    if (error.reason() != ENOENT) throw;
  }
  std::ranges::sort(ids, std::greater{});
  return ids;
}

Checkpoint CheckpointStore::open(const CheckpointId& id) const {
  if (!std::ranges::count(list(), id)) {
    throw NotFound(fmt::format("there is no checkpoint {} in \"{}\"", id.text(), folder_));
  }
  return Checkpoint(*options_.files, path(id.folder()), options_.key);
}

std::optional<Restored> CheckpointStore::restore(const std::function<void(const Checkpoint&)>& load) const {
  std::vector<std::pair<CheckpointId, std::string>> damaged;
  for (const CheckpointId& id : list()) {
    try {
      load(Checkpoint(*options_.files, path(id.folder()), options_.key));
    } catch (const DataLoss& error) {
      const std::lock_guard lock(mutex_);
      damaged_.insert(id);
      damaged.emplace_back(id, error.what());
      if (static_cast<int>(damaged.size()) > options_.max_fallback) break;
      continue;
    }
    Restored restored{.id = id};
    for (const auto& [other, what] : damaged) {
      const std::int64_t steps = other.step - id.step;
      restored.warnings.push_back(
          fmt::format("{}; using {} ({} step{} older)", what, id.text(), steps, steps == 1 ? "" : "s"));
    }
    return restored;
  }
  if (damaged.empty()) return std::nullopt;
  throw NoUsableCheckpoint(
      fmt::format("no usable checkpoint in \"{}\": {} damaged, {} passed over at most; the newest: {}",
                  folder_, damaged.size(), options_.max_fallback, damaged.front().second));
}

std::optional<Restored> CheckpointStore::find_whole() const {
  return restore([](const Checkpoint& checkpoint) { checkpoint.verify(); });
}

Pruned CheckpointStore::prune() {
  Pruned result;
  try {
    while (true) {
      const auto ids = list();
      const auto doomed = superfluous(ids);
      if (doomed.empty()) return result;
      const auto newest = std::ranges::find_if(ids, [&](const CheckpointId& id) {
        const std::lock_guard lock(mutex_);
        return !damaged_.contains(id);
      });
      // If it is damaged, that is known now, and another set of the others is to be kept.
      if (!is_whole_on_disk(*newest, result)) continue;
      remove(doomed, result);
      return result;
    }
  } catch (const Error& error) {
    result.warnings.push_back(error.what());
  }
  return result;
}

Pruned CheckpointStore::remove_all() {
  Pruned result;
  try {
    const auto ids = list();
    if (ids.empty()) return result;
    remove(ids, result);
    options_.files->remove_file(path(kHint));
  } catch (const Error& error) {
    result.warnings.push_back(error.what());
  }
  return result;
}

// Those known to be damaged are not counted: K that can be used are kept.
std::vector<CheckpointId> CheckpointStore::superfluous(const std::vector<CheckpointId>& newest_first) {
  std::vector<CheckpointId> rest;
  if (options_.keep <= 0) return rest;
  int usable = 0;
  for (const CheckpointId& id : newest_first) {
    if (usable >= options_.keep) {
      rest.push_back(id);
      continue;
    }
    const std::lock_guard lock(mutex_);
    if (!damaged_.contains(id)) ++usable;
  }
  if (options_.keep_every.count() <= 0) return rest;
  std::vector<CheckpointId> doomed;
  std::optional<std::int64_t> last_kept;
  for (auto id = rest.rbegin(); id != rest.rend(); ++id) {
    const auto time = saved_at(*id);
    if (time && (!last_kept || *time - *last_kept >= options_.keep_every.count())) {
      last_kept = time;
    } else {
      doomed.push_back(*id);
    }
  }
  return doomed;
}

// Nothing if its manifest cannot be read: it is damaged, and not worth keeping for its age.
std::optional<std::int64_t> CheckpointStore::saved_at(const CheckpointId& id) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = saved_at_.find(id);
    if (known != saved_at_.end()) return known->second;
  }
  try {
    const std::int64_t time =
        parse_manifest(
            read_whole_file(*options_.files, path(id.folder() + "/manifest.json"), kLargestManifest))
            .saved_at;
    const std::lock_guard lock(mutex_);
    saved_at_[id] = time;
    return time;
  } catch (const DataLoss&) {
    return std::nullopt;
  } catch (const FileError& error) {
    if (error.reason() == ENOENT) return std::nullopt;
    throw;
  }
}

bool CheckpointStore::is_whole_on_disk(const CheckpointId& id, Pruned& result) {
  {
    const std::lock_guard lock(mutex_);
    if (reread_.contains(id)) return true;
  }
  try {
    Checkpoint(*options_.files, path(id.folder()), options_.key).verify(Checkpoint::From::kDisk);
    const std::lock_guard lock(mutex_);
    reread_.insert(id);
    return true;
  } catch (const DataLoss& error) {
    result.warnings.push_back(fmt::format("{}; older ones are kept", error.what()));
    const std::lock_guard lock(mutex_);
    damaged_.insert(id);
    return false;
  }
}

// Renamed first, and the new names synced before the files go: a crash in between must not leave a name of a
// checkpoint with half of its files.
void CheckpointStore::remove(const std::vector<CheckpointId>& ids, Pruned& result) {
  std::vector<std::string> trash;
  for (const CheckpointId& id : ids) {
    trash.push_back(path(kTrash + random_suffix()));
    options_.files->rename(path(id.folder()), trash.back());
    result.removed.push_back(id);
    const std::lock_guard lock(mutex_);
    damaged_.erase(id);
    reread_.erase(id);
    saved_at_.erase(id);
  }
  options_.files->sync_folder(folder_);
  for (const std::string& folder : trash) {
    remove_tree(*options_.files, {{}, FolderEntry::Kind::kFolder}, folder);
  }
}

}  // namespace tandem::internal
