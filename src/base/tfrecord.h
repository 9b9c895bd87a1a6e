#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/append_file.h"
#include "base/compression.h"
#include "base/record_file.h"

namespace tandem::internal {

// A TFRecord file to read. Throws as RecordReader does, also for what is packed otherwise; offsets are those
// of the unpacked bytes.
RecordReader open_tfrecord(const std::string& path, Compression compression = Compression::kNone,
                           RecordReaderOptions options = {});

// Writes a TFRecord file, which has its name only once it is whole: until then it is `path`.partial. Not
// thread-safe.
class TfRecordWriter {
 public:
  // Throws NotFound with the system's reason.
  explicit TfRecordWriter(std::string path, Compression compression = Compression::kNone);
  // Without close() the file goes away.
  ~TfRecordWriter();
  TfRecordWriter(const TfRecordWriter&) = delete;
  TfRecordWriter& operator=(const TfRecordWriter&) = delete;

  // Mostly into memory. Throws NotFound with the system's reason if the file cannot be written; the record
  // then still is with the writer, and a later call tries again.
  void append(std::string_view record);

  // Writes the rest, syncs, and gives the file its name, in place of one that has it. Throws as append()
  // does. Nothing may follow.
  void close();

  const std::string& path() const { return path_; }
  std::int64_t records() const { return records_; }

 private:
  void flush();

  std::string path_;
  std::optional<AppendFile> file_;  // empty: closed
  Packer packer_;
  std::string buffer_;
  std::string packed_;
  std::int64_t records_ = 0;
};

// TensorFlow's names for the files of one set: "train-00000-of-00005" to "train-00004-of-00005".
std::vector<std::string> shard_names(const std::string& prefix, int count);

// The files of a set that are there, in order. Throws NotFound if there is none, or if one is missing;
// InvalidArgument if there are sets of several sizes.
std::vector<std::string> find_shards(const std::string& prefix);

// Deals records out to the files of a set, in turn. Not thread-safe.
class ShardedTfRecordWriter {
 public:
  // Throws InvalidArgument unless count is 1 to 99,999; NotFound as TfRecordWriter does.
  ShardedTfRecordWriter(const std::string& prefix, int count, Compression compression = Compression::kNone);

  void append(std::string_view record);

  // All of them get their names, after all of them have been written. A set of the same prefix and another
  // count is not touched.
  void close();

 private:
  std::deque<TfRecordWriter> shards_;
  std::size_t next_ = 0;
};

}  // namespace tandem::internal
