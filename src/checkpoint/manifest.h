#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "checkpoint/safetensors.h"

namespace tandem::internal {

// Checksums are of pieces of a shard of this size, the last one shorter.
inline constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;

// Which state a checkpoint holds: of a step, and of a generation of the run (how often its tasks have started
// together), since a step can be trained again after a failure. The newest is the highest, step first.
struct CheckpointId {
  std::int64_t step = 0;
  std::int64_t generation = 0;

  auto operator<=>(const CheckpointId&) const = default;

  std::string folder() const;  // "step-000000001200.g000007"
  std::string text() const;    // "step 1200 g7"
  // Nothing unless folder() gives exactly this name.
  static std::optional<CheckpointId> parse(std::string_view folder);
};

// Throws InvalidArgument unless both numbers fit into the folder's name.
void check_id(const CheckpointId& id);

// One file of a checkpoint, as who wrote it saw it go by. Several tasks write their own; the summaries travel
// to the one that writes the manifest.
struct ShardSummary {
  int index = 0;
  int count = 1;
  // Not empty: the shard could not be written, for this reason; the rest means nothing then.
  std::string error = {};
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> crc32c = {};  // of each chunk
  std::vector<std::string> sha256 = {};    // of each chunk, if there is a key
  std::vector<TensorEntry> tensors = {};   // in the order of their values

  std::string name() const;  // "shard-0-of-2"
  std::string file() const;  // "shard-0-of-2.safetensors"

  // As bytes that can travel. from_bytes() throws DataLoss unless to_bytes() can have made them.
  std::string to_bytes() const;
  static ShardSummary from_bytes(std::string_view bytes);
};

struct Manifest {
  CheckpointId id = {};
  std::int64_t saved_at = 0;              // seconds since 1970
  std::vector<ShardSummary> shards = {};  // by index
  std::string meta = "{}";                // a JSON object: whatever else a restore needs
};

// As the file manifest.json has it. make throws InvalidArgument, parse DataLoss, unless shards are complete,
// no tensor is in two of them, numbers fit together, and meta is a JSON object without a key twice, at most
// 64 deep.
inline constexpr std::size_t kLargestManifest = std::size_t{64} << 20;
std::string make_manifest(const Manifest& manifest);
Manifest parse_manifest(std::string_view text);

// The file COMMIT, written last: the digest of the manifest, and, with a key, a tag that only its owners can
// make. check throws DataLoss, saying what is wrong, unless it belongs to the manifest. With a key, a
// checkpoint without a tag is refused; without one, a tag is not looked at.
inline constexpr std::size_t kLargestCommit = 1024;
std::string make_commit(std::string_view manifest, std::string_view key);
void check_commit(std::string_view commit, std::string_view manifest, std::string_view key);

// The checksums of a file that goes by from its beginning.
class ChunkChecksums {
 public:
  explicit ChunkChecksums(bool with_sha256) : with_sha256_(with_sha256) {}

  void update(Bytes bytes);
  // Once, after the last byte.
  void finish_into(ShardSummary& summary);

 private:
  void end_chunk();

  bool with_sha256_;
  std::uint64_t in_chunk_ = 0;
  std::uint32_t crc_ = 0;
  std::optional<Sha256> sha256_;
  std::vector<std::uint32_t> crcs_;
  std::vector<std::string> digests_;
};

}  // namespace tandem::internal
