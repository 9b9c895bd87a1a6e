#include "base/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace tandem::internal {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::size_t kFooter = 4;
constexpr std::size_t kPiece = 256 << 10;

template <typename Number>
void append_number(std::string& out, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) out += static_cast<char>(number >> (8 * i));
}

template <typename Number>
Number number_at(const char* data) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    number |= static_cast<Number>(static_cast<std::uint8_t>(data[i])) << (8 * i);
  }
  return number;
}

}  // namespace

void append_record(std::string& out, std::string_view payload) {
  const std::size_t begin = out.size();
  append_number<std::uint64_t>(out, payload.size());
  append_number(out, masked_crc32c(out.data() + begin, sizeof(std::uint64_t)));
  out += payload;
  append_number(out, masked_crc32c(payload.data(), payload.size()));
}

void RecordWriter::flush() {
  file_.append(buffer_);
  buffer_.clear();
}

RecordReader::RecordReader(std::string name, Source source, RecordReaderOptions options)
    : name_(std::move(name)), source_(std::move(source)), options_(options) {}

RecordReader::RecordReader(const std::string& path, RecordReaderOptions options)
    : RecordReader(path, file_source(path), options) {}

std::optional<std::string> RecordReader::next() {
  const auto record = next_view();
  return record ? std::optional<std::string>(*record) : std::nullopt;
}

std::optional<std::string_view> RecordReader::next_view() {
  if (!damage_.empty()) throw DataLoss(damage_);
  if (!fill(kHeader)) {
    if (begin_ == end_) return std::nullopt;
    throw TornRecord(fmt::format("\"{}\" ends after {} of the 12 bytes that begin the record at offset {}",
                                 name_, end_ - begin_, offset_));
  }
  const char* const header = buffer_.get() + begin_;
  const auto length = number_at<std::uint64_t>(header);
  if (masked_crc32c(header, sizeof length) != number_at<std::uint32_t>(header + sizeof length)) {
    const bool is_gzip = offset_ == 0 && std::string_view(header, 2) == "\x1f\x8b";
    refuse(is_gzip ? "the checksum of its length is wrong, because it is a GZIP file: read it as one"
                   : "the checksum of its length is wrong");
  }
  if (length > options_.max_record_bytes) {
    refuse(fmt::format("it says to be {} bytes long, and at most {} are read", length,
                       options_.max_record_bytes));
  }
  const std::size_t whole = kHeader + static_cast<std::size_t>(length) + kFooter;
  if (!fill(whole)) {
    throw TornRecord(fmt::format("\"{}\" ends after {} of the {} bytes of the record at offset {}", name_,
                                 end_ - begin_, whole, offset_));
  }
  const char* const payload = buffer_.get() + begin_ + kHeader;  // it may have moved
  if (masked_crc32c(payload, length) != number_at<std::uint32_t>(payload + length)) {
    refuse("the checksum of its bytes is wrong");
  }
  begin_ += whole;
  offset_ += whole;
  ++index_;
  return std::string_view(payload, length);
}

// Whether so many bytes are here. Reads as much as there is room for.
bool RecordReader::fill(std::size_t bytes) {
  while (end_ - begin_ < bytes) {
    make_room();
    const std::size_t got = source_(buffer_.get() + end_, capacity_ - end_);
    if (got == 0) return false;
    end_ += got;
  }
  return true;
}

// What is left of the record at hand goes to the front; it gets a larger buffer when it fills half of this
// one.
void RecordReader::make_room() {
  if (begin_ == 0 && end_ < capacity_) return;
  const std::size_t left = end_ - begin_;
  if (left < capacity_ - capacity_ / 2) {
    if (left > 0) std::memmove(buffer_.get(), buffer_.get() + begin_, left);
  } else {
    capacity_ = std::max(kPiece, 2 * capacity_);
    auto larger = std::make_unique_for_overwrite<char[]>(capacity_);
    if (left > 0) std::memcpy(larger.get(), buffer_.get() + begin_, left);
    buffer_ = std::move(larger);
  }
  begin_ = 0;
  end_ = left;
}

void RecordReader::refuse(const std::string& what) {
  damage_ = fmt::format("the record at offset {} of \"{}\" is damaged: {}", offset_, name_, what);
  throw DataLoss(damage_);
}

}  // namespace tandem::internal
