#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "base/crc32c.h"
#include "cluster/text.h"

namespace tandem::internal {
namespace {

// Read in pieces that stay in the processor's cache until their checksum is done.
constexpr std::size_t kPiece = std::size_t{256} << 10;

// Whether a call failed because of what is on the disk, and not because of us or of the moment.
bool means_damage(int reason) {
  return reason == ENOENT || reason == EIO || reason == ENOTDIR || reason == EISDIR || reason == ELOOP ||
         reason == ENXIO;
}

bool same(const std::vector<TensorEntry>& a, const std::vector<TensorEntry>& b) {
  return std::ranges::equal(a, b, [](const TensorEntry& x, const TensorEntry& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.begin == y.begin &&
           x.end == y.end;
  });
}

// For the message about a chunk: the tensors whose values it has.
std::string tensors_in(const ShardSummary& shard, std::uint64_t begin, std::uint64_t end) {
  std::vector<const TensorEntry*> inside;
  for (const TensorEntry& tensor : shard.tensors) {
    if (std::max(tensor.begin, begin) < std::min(tensor.end, end)) inside.push_back(&tensor);
  }
  if (inside.empty()) return "header";
  if (inside.size() == 1) return inside[0]->name;
  return fmt::format("{} and {} more", inside[0]->name, inside.size() - 1);
}

// The checksum of one chunk as it is read.
class ChunkCheck {
 public:
  ChunkCheck(const ShardSummary& shard, std::size_t chunk, bool with_sha256) : shard_(shard), chunk_(chunk) {
    if (with_sha256) sha256_.emplace();
  }

  void update(Bytes bytes) {
    crc_ = crc32c(bytes.data(), bytes.size(), crc_);
    if (sha256_) sha256_->update(bytes.data(), bytes.size());
  }

  // What differs; empty if nothing does.
  std::string fault() {
    if (crc_ != shard_.crc32c[chunk_]) {
      return fmt::format("crc32c {:08x} expected {:08x}", crc_, shard_.crc32c[chunk_]);
    }
    if (!sha256_) return {};
    const std::string digest = sha256_->hex();
    if (digest == shard_.sha256[chunk_]) return {};
    return fmt::format("sha256 {} expected {}", digest, shard_.sha256[chunk_]);
  }

 private:
  const ShardSummary& shard_;
  std::size_t chunk_;
  std::uint32_t crc_ = 0;
  std::optional<Sha256> sha256_;
};

}  // namespace

// A part of a shard, and the memory it goes to.
struct Checkpoint::Wanted {
  std::uint64_t begin;
  std::span<std::byte> bytes;
  const TensorEntry* tensor;

  std::uint64_t end() const { return begin + bytes.size(); }
};

Checkpoint::Checkpoint(FileSystem& files, const std::string& folder, std::string_view key)
    : folder_(folder), key_(key) {
  // For messages until the manifest is read, and what the manifest must say.
  const auto id = CheckpointId::parse(std::filesystem::path(folder).filename().string());
  if (id) manifest_.id = *id;
  try {
    const std::string commit = read_whole_file(files, folder + "/COMMIT", kLargestCommit);
    const std::string text = read_whole_file(files, folder + "/manifest.json", kLargestManifest);
    check_commit(commit, text, key);
    Manifest manifest = parse_manifest(text);
    if (id && manifest.id != *id) {
      throw DataLoss(fmt::format("manifest.json is of {}", manifest.id.text()));
    }
    manifest_ = std::move(manifest);
    open_shards(files);
  } catch (const DataLoss& error) {
    throw damaged(error.what());
  } catch (const InvalidArgument& error) {  // a FIFO or a pickle in the place of a file
    throw damaged(error.what());
  } catch (const FileError& error) {
    if (means_damage(error.reason())) throw damaged(error.what());
    throw;
  }
  for (const ShardSummary& shard : manifest_.shards) {
    for (const TensorEntry& tensor : shard.tensors) tensors_.emplace(tensor.name, Place{&tensor, &shard});
  }
}

void Checkpoint::open_shards(FileSystem& files) {
  for (const ShardSummary& shard : manifest_.shards) {
    if (!key_.empty() && shard.sha256.empty()) {
      throw DataLoss(fmt::format("{} has no sha256: it was not saved with this key", shard.name()));
    }
    auto file = files.open_file(folder_ + "/" + shard.file());
    if (file->size() != shard.bytes) {
      throw DataLoss(fmt::format("{} has {} bytes, expected {}", shard.name(), file->size(), shard.bytes));
    }
    const std::uint64_t header_end = shard.tensors.empty() ? shard.bytes : shard.tensors.front().begin;
    std::string beginning(std::min(header_end, kLongestHeader + 8), '\0');
    if (file->read_at(0, std::as_writable_bytes(std::span(beginning))) != beginning.size()) {
      throw DataLoss(fmt::format("{} was cut", shard.name()));
    }
    if (!same(parse_safetensors(shard.name(), beginning, shard.bytes).tensors, shard.tensors)) {
      throw DataLoss(fmt::format("the header of {} is not that of the manifest", shard.name()));
    }
    files_.push_back(std::move(file));
  }
}

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.tensor;
}

void Checkpoint::read(std::span<const TensorRequest> requests) const {
  std::vector<std::vector<Wanted>> wanted(manifest_.shards.size());
  for (const TensorRequest& request : requests) {
    const auto found = tensors_.find(request.name);
    if (found == tensors_.end()) {
      throw InvalidArgument(
          fmt::format("checkpoint {} has no tensor {}", manifest_.id.text(), quote(request.name)));
    }
    const auto& [tensor, shard] = found->second;
    if (request.offset > tensor->bytes() || request.bytes.size() > tensor->bytes() - request.offset) {
      throw InvalidArgument(fmt::format("{} bytes from byte {} of tensor {} of checkpoint {}: it has {}",
                                        request.bytes.size(), request.offset, quote(request.name),
                                        manifest_.id.text(), tensor->bytes()));
    }
    if (request.bytes.empty()) continue;
    wanted[static_cast<std::size_t>(shard->index)].push_back(
        {tensor->begin + request.offset, request.bytes, tensor});
  }
  for (auto& of_shard : wanted) {
    std::ranges::sort(of_shard, {}, &Wanted::begin);
    for (std::size_t i = 1; i < of_shard.size(); ++i) {
      if (of_shard[i].begin < of_shard[i - 1].end()) {
        throw InvalidArgument(fmt::format("values of tensor {} are asked for twice in one read",
                                          quote(of_shard[i].tensor->name)));
      }
    }
  }
  for (std::size_t shard = 0; shard < wanted.size(); ++shard) read_shard(shard, wanted[shard]);
}

void Checkpoint::verify(From from) const {
  for (std::size_t i = 0; i < manifest_.shards.size(); ++i) {
    if (from == From::kDisk) files_[i]->forget_cached();
    // As if a byte of each chunk were wanted.
    std::vector<Wanted> wanted;
    std::vector<std::byte> bytes((manifest_.shards[i].bytes + kChunkBytes - 1) / kChunkBytes);
    for (std::size_t chunk = 0; chunk < bytes.size(); ++chunk) {
      wanted.push_back({chunk * kChunkBytes, std::span(bytes).subspan(chunk, 1), nullptr});
    }
    read_shard(i, wanted);
  }
}

void Checkpoint::read_shard(std::size_t index, std::span<const Wanted> wanted) const {
  std::vector<std::byte> unwanted(kPiece);
  std::size_t chunk = 0;
  while (!wanted.empty()) {
    chunk = std::max(chunk, static_cast<std::size_t>(wanted.front().begin / kChunkBytes));
    read_chunk(index, chunk, wanted, unwanted);
    ++chunk;
  }
}

// From its beginning to its end: what is wanted goes straight to its place, the rest to a buffer, and all of
// it into the checksum. Drops those of `wanted` that are then complete.
void Checkpoint::read_chunk(std::size_t index, std::size_t chunk, std::span<const Wanted>& wanted,
                            std::span<std::byte> unwanted) const {
  const ShardSummary& shard = manifest_.shards[index];
  const std::uint64_t begin = chunk * kChunkBytes;
  const std::uint64_t end = std::min(begin + kChunkBytes, shard.bytes);
  const auto in_this_chunk = [&](const std::string& fault) {
    return damaged(
        fmt::format("{} chunk {} ({}), {}", shard.name(), chunk, tensors_in(shard, begin, end), fault));
  };
  ChunkCheck check(shard, chunk, !key_.empty());
  for (std::uint64_t at = begin; at < end;) {
    const bool inside = !wanted.empty() && wanted.front().begin <= at;
    const std::uint64_t change = inside ? wanted.front().end() : wanted.empty() ? end : wanted.front().begin;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(std::min(change, end) - at, kPiece));
    const std::span<std::byte> piece =
        inside ? wanted.front().bytes.subspan(at - wanted.front().begin, n) : unwanted.first(n);
    std::size_t came = 0;
    try {
      came = files_[index]->read_at(at, piece);
    } catch (const FileError& error) {
      if (means_damage(error.reason())) throw in_this_chunk(error.what());
      throw;
    }
    if (came != n) throw in_this_chunk(fmt::format("the file ends at byte {}", at + came));
    check.update(piece);
    at += n;
    if (inside && at == wanted.front().end()) wanted = wanted.subspan(1);
  }
  if (const std::string fault = check.fault(); !fault.empty()) throw in_this_chunk(fault);
}

DataLoss Checkpoint::damaged(const std::string& what) const {
  return DataLoss(fmt::format("checkpoint {} is damaged: {}", manifest_.id.text(), what));
}

}  // namespace tandem::internal
