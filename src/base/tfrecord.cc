#include "base/tfrecord.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/file_descriptor.h"
#include "tandem/error.h"

namespace fs = std::filesystem;

namespace tandem::internal {
namespace {

constexpr std::size_t kPiece = 1 << 20;
constexpr int kMostShards = 99'999;

std::string partial(const std::string& path) {
  return path + ".partial";
}

NotFound refuse(const std::string& path, const char* what) {
  return NotFound(fmt::format("cannot write \"{}\": {}: {}", path, what, std::strerror(errno)));
}

// "-00003-of-00005" after a prefix.
struct ShardSuffix {
  int index = 0;
  int count = 0;
};

std::optional<ShardSuffix> parse_suffix(std::string_view text) {
  constexpr std::size_t kLength = 15;
  if (text.size() != kLength || text[0] != '-' || text.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = [&](std::size_t at) -> std::optional<int> {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 5, value);
    if (error != std::errc() || end != text.data() + at + 5 || value < 0) return std::nullopt;
    return value;
  };
  const auto index = number(1);
  const auto count = number(10);
  if (!index || !count || *index >= *count) return std::nullopt;
  return ShardSuffix{*index, *count};
}

}  // namespace

RecordReader open_tfrecord(const std::string& path, Compression compression, RecordReaderOptions options) {
  return RecordReader(path, unpacked(path, file_source(path), compression), options);
}

TfRecordWriter::TfRecordWriter(std::string path, Compression compression)
    : path_(std::move(path)), file_(AppendFile(partial(path_), Existing::kTruncate)), packer_(compression) {}

TfRecordWriter::~TfRecordWriter() {
  if (file_) std::remove(partial(path_).c_str());
}

void TfRecordWriter::append(std::string_view record) {
  append_record(buffer_, record);
  ++records_;
  if (buffer_.size() >= kPiece) flush();
}

void TfRecordWriter::flush() {
  packer_.pack(buffer_, packed_);
  buffer_.clear();
  if (packed_.size() < kPiece) return;
  file_->append(packed_);
  packed_.clear();
}

void TfRecordWriter::close() {
  packer_.pack(buffer_, packed_);
  buffer_.clear();
  packer_.finish(packed_);
  file_->append(packed_);
  packed_.clear();
  const FileDescriptor written(open(partial(path_).c_str(), O_RDONLY | O_CLOEXEC));
  if (!written || fsync(written.get()) != 0) throw refuse(path_, "sync");
  if (std::rename(partial(path_).c_str(), path_.c_str()) != 0) throw refuse(path_, "rename");
  file_.reset();
}

std::vector<std::string> shard_names(const std::string& prefix, int count) {
  if (count < 1 || count > kMostShards) {
    throw InvalidArgument(fmt::format("\"{}\" in {} files: expected 1 to {}", prefix, count, kMostShards));
  }
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(fmt::format("{}-{:05}-of-{:05}", prefix, i, count));
  return names;
}

std::vector<std::string> find_shards(const std::string& prefix) {
  const fs::path parent = fs::path(prefix).parent_path();
  const std::string name = fs::path(prefix).filename().string();
  std::set<int> counts;
  std::set<std::string> there;
  std::error_code error;
  fs::directory_iterator entries(parent.empty() ? "." : parent, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string file = entries->path().filename().string();
    if (!file.starts_with(name)) continue;
    const auto suffix = parse_suffix(std::string_view(file).substr(name.size()));
    if (!suffix) continue;
    counts.insert(suffix->count);
    there.insert(prefix + file.substr(name.size()));
  }
  if (error) throw NotFound(fmt::format("cannot read the folder of \"{}\": {}", prefix, error.message()));
  if (counts.empty()) {
    throw NotFound(fmt::format("there is no file \"{}-00000-of-NNNNN\", of whatever number", prefix));
  }
  if (counts.size() > 1) {
    throw InvalidArgument(fmt::format("\"{}\" names a set of {} files and one of {}: remove one of them",
                                      prefix, *counts.begin(), *counts.rbegin()));
  }
  const std::vector<std::string> names = shard_names(prefix, *counts.begin());
  for (const auto& file : names) {
    if (!there.contains(file)) {
      throw NotFound(
          fmt::format("\"{}\" is missing: {} of {} files are there", file, there.size(), names.size()));
    }
  }
  return names;
}

ShardedTfRecordWriter::ShardedTfRecordWriter(const std::string& prefix, int count, Compression compression) {
  for (const auto& name : shard_names(prefix, count)) shards_.emplace_back(name, compression);
}

void ShardedTfRecordWriter::append(std::string_view record) {
  shards_[next_].append(record);
  next_ = (next_ + 1) % shards_.size();
}

void ShardedTfRecordWriter::close() {
  for (auto& shard : shards_) shard.close();
}

}  // namespace tandem::internal
