#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"

namespace tandem::internal {

// Where the values of a tensor go.
struct TensorRequest {
  std::string name;
  std::span<std::byte> bytes;
  // Where in the tensor they begin, in bytes: one task may want only its part.
  std::uint64_t offset = 0;
};

// A committed checkpoint, open for reading. Every value that read() gives has been checked against the
// checksum of its chunk, in memory, after it was read. All functions may be called from any thread.
class Checkpoint {
 public:
  // Checks everything but the values: COMMIT, manifest, sizes, headers. `folder` is the whole path; `files`
  // must live as long as this. Throws DataLoss, "checkpoint step 1200 g7 is damaged: ...", if it is not as it
  // was saved, FileError if that cannot be found out (permissions, too many open files).
  Checkpoint(FileSystem& files, const std::string& folder, std::string_view key = {});

  const CheckpointId& id() const { return manifest_.id; }
  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // A JSON object.
  const std::string& meta() const { return manifest_.meta; }

  struct Place {
    const TensorEntry* tensor;
    const ShardSummary* shard;
  };
  // Those of all shards, by name.
  const std::map<std::string_view, Place>& tensors() const { return tensors_; }
  // Null if there is none.
  const TensorEntry* find(std::string_view name) const;

  // Fills them all, each shard from its beginning to its end, so ask for many at once: a chunk (4 MiB) is
  // read whole, however little of it is wanted. No memory but the requests' is written to beyond a small
  // buffer. Throws InvalidArgument for a tensor that is not there, a part outside of it, or a byte that is
  // asked for twice; DataLoss ("... shard-2-of-4 chunk 5 (layer3.0.conv1.weight), crc32c 1f000000 expected
  // 9a000000") if values are damaged: what was filled until then is not to be used.
  void read(std::span<const TensorRequest> requests) const;

  enum class From { kAnywhere, kDisk };
  // Reads everything. kDisk: not from memory that the system kept since the file was written.
  void verify(From from = From::kAnywhere) const;

 private:
  struct Wanted;

  void open_shards(FileSystem& files);
  void read_shard(std::size_t index, std::span<const Wanted> wanted) const;
  void read_chunk(std::size_t index, std::size_t chunk, std::span<const Wanted>& wanted,
                  std::span<std::byte> unwanted) const;
  DataLoss damaged(const std::string& what) const;

  std::string folder_;
  std::string key_;
  Manifest manifest_;
  std::vector<std::unique_ptr<ReadableFile>> files_;  // of each shard
  std::map<std::string_view, Place> tensors_;
};

}  // namespace tandem::internal
