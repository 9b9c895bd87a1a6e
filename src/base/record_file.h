#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/append_file.h"
#include "base/byte_source.h"
#include "tandem/error.h"

namespace tandem::internal {

// TensorFlow's record files (TFRecord, event files) are records one after the other, each of them
//   length u64 | masked crc32c of the length u32 | the bytes | masked crc32c of the bytes u32
// with little-endian numbers.

// Adds a record to `out`.
void append_record(std::string& out, std::string_view payload);

// Writes a record file. Not thread-safe.
class RecordWriter {
 public:
  explicit RecordWriter(AppendFile file) : file_(std::move(file)) {}

  // Into memory; nothing is in the file before flush().
  void append(std::string_view payload) { append_record(buffer_, payload); }
  std::size_t buffered_bytes() const { return buffer_.size(); }

  // Throws as AppendFile::append does; then the records are still here, and the next flush() tries again.
  void flush();

 private:
  AppendFile file_;
  std::string buffer_;
};

// The file ends in the middle of a record: its writer was killed there, or has not got further yet.
class TornRecord : public DataLoss {
 public:
  using DataLoss::DataLoss;
};

struct RecordReaderOptions {
  // A longer record is refused: a length is four bytes of checksum away from being any number.
  std::uint64_t max_record_bytes = std::uint64_t{1} << 30;
};

// Reads a record file from its beginning. Memory for a record is taken as its bytes arrive, never because of
// what a length says. Not thread-safe.
class RecordReader {
 public:
  using Source = ByteSource;

  // `name` is what messages call the source.
  RecordReader(std::string name, Source source, RecordReaderOptions options = {});

  // A file. Throws NotFound with the system's reason, also while reading.
  explicit RecordReader(const std::string& path, RecordReaderOptions options = {});

  // The next record, or nothing at the end. Throws TornRecord if the file ends in the middle of one; a later
  // call goes on from there, in case that the file has grown. Throws DataLoss, naming file and offset, for a
  // record that is damaged or too long; so does every later call, because where the next one begins is
  // anybody's guess. Throws whatever the source does.
  std::optional<std::string> next();

  // The same without a copy: good until the next call.
  std::optional<std::string_view> next_view();

  // Where the next record begins, and how many were before it.
  std::uint64_t offset() const { return offset_; }
  std::int64_t index() const { return index_; }

  const std::string& name() const { return name_; }

 private:
  bool fill(std::size_t bytes);
  void make_room();
  [[noreturn]] void refuse(const std::string& what);

  std::string name_;
  Source source_;
  RecordReaderOptions options_;
  std::uint64_t offset_ = 0;
  std::int64_t index_ = 0;
  std::string damage_;

  // What has arrived and not been handed out: [begin_, end_) of the buffer.
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace tandem::internal
