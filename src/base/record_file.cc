#include "base/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
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

RecordReader::Source file_source(const std::string& path) {
  const std::shared_ptr<std::FILE> file(std::fopen(path.c_str(), "rbe"), [](std::FILE* open) {
    if (open) std::fclose(open);
  });
  const auto refuse = [path] {
    return NotFound(fmt::format("cannot read \"{}\": {}", path, std::strerror(errno)));
  };
  if (!file) throw refuse();
  std::setvbuf(file.get(), nullptr, _IOFBF, kPiece);
  return [file, refuse](char* data, std::size_t bytes) {
    std::clearerr(file.get());  // the end may have moved since the last time
    const std::size_t got = std::fread(data, 1, bytes, file.get());
    if (std::ferror(file.get())) throw refuse();
    return got;
  };
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
  if (!damage_.empty()) throw DataLoss(damage_);
  if (!fill(kHeader)) {
    if (record_.empty()) return std::nullopt;
    throw TornRecord(fmt::format("\"{}\" ends after {} of the 12 bytes that begin the record at offset {}",
                                 name_, record_.size(), offset_));
  }
  const auto length = number_at<std::uint64_t>(record_.data());
  if (masked_crc32c(record_.data(), sizeof length) !=
      number_at<std::uint32_t>(record_.data() + sizeof length)) {
    refuse("the checksum of its length is wrong");
  }
  if (length > options_.max_record_bytes) {
    refuse(fmt::format("it says to be {} bytes long, and at most {} are read", length,
                       options_.max_record_bytes));
  }
  const std::size_t whole = kHeader + static_cast<std::size_t>(length) + kFooter;
  if (!fill(whole)) {
    throw TornRecord(fmt::format("\"{}\" ends after {} of the {} bytes of the record at offset {}", name_,
                                 record_.size(), whole, offset_));
  }
  if (masked_crc32c(record_.data() + kHeader, length) !=
      number_at<std::uint32_t>(record_.data() + kHeader + length)) {
    refuse("the checksum of its bytes is wrong");
  }
  offset_ += whole;
  std::string payload = std::move(record_);
  record_.clear();
  payload.resize(kHeader + length);
  payload.erase(0, kHeader);
  return payload;
}

// Whether so many bytes of the record are here.
bool RecordReader::fill(std::size_t bytes) {
  while (record_.size() < bytes) {
    const std::size_t had = record_.size();
    const std::size_t wanted = std::min(bytes - had, kPiece);
    record_.resize(had + wanted);
    std::size_t got = 0;
    try {
      got = source_(record_.data() + had, wanted);
    } catch (...) {
      record_.resize(had);
      throw;
    }
    record_.resize(had + got);
    if (got < wanted) return false;
  }
  return true;
}

void RecordReader::refuse(const std::string& what) {
  damage_ = fmt::format("the record at offset {} of \"{}\" is damaged: {}", offset_, name_, what);
  throw DataLoss(damage_);
}

}  // namespace tandem::internal
