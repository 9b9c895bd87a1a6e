#include "base/csv_reader.h"

#include <fmt/format.h>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::size_t kBuffer = std::size_t{64} << 10;
constexpr std::size_t kLongestRecord = std::size_t{1} << 20;

}  // namespace

CsvReader::CsvReader(std::string name, ByteSource source, CsvFormat format)
    : name_(std::move(name)), source_(std::move(source)), format_(format) {
  peek();
  if (std::string_view(buffer_).starts_with("\xEF\xBB\xBF")) place_ = 3;
}

std::string CsvReader::where() const {
  return fmt::format("{}:{}", name_, record_line_);
}

int CsvReader::peek() {
  if (place_ == buffer_.size() && !ended_) {
    buffer_.resize(kBuffer);
    buffer_.resize(source_(buffer_.data(), kBuffer));
    place_ = 0;
    ended_ = buffer_.empty();
  }
  return ended_ ? kEnd : static_cast<unsigned char>(buffer_[place_]);
}

int CsvReader::take() {
  const int byte = peek();
  if (byte == kEnd) return kEnd;
  ++place_;
  if (byte == '\n') ++line_;
  if (++record_bytes_ > kLongestRecord) {
    throw DataLoss(
        fmt::format("{}: a record of more than {} bytes: expected a CSV file", where(), kLongestRecord));
  }
  return byte;
}

// Takes CR LF, LF, a lone CR, or the end of the file.
bool CsvReader::at_line_end() {
  const int byte = peek();
  if (byte == kEnd) return true;
  if (byte == '\r') {
    take();
    if (peek() == '\n') take();
    return true;
  }
  if (byte != '\n') return false;
  take();
  return true;
}

void CsvReader::read_quoted(std::string& cell) {
  take();
  for (;;) {
    const int byte = take();
    if (byte == kEnd) throw DataLoss(fmt::format("{}: a quote is opened and never closed", where()));
    if (byte != '"') {
      cell += static_cast<char>(byte);
    } else if (peek() == '"') {
      cell += static_cast<char>(take());
    } else {
      break;
    }
  }
  const int after = peek();
  if (after != kEnd && after != '\r' && after != '\n' &&
      after != static_cast<unsigned char>(format_.separator)) {
    throw DataLoss(
        fmt::format("{}: '{}' after a closing quote: expected '{}' or the end of the line (write "
                    "a quote in a quoted cell twice)",
                    where(), static_cast<char>(after), format_.separator));
  }
}

std::string CsvReader::read_cell() {
  std::string cell;
  if (format_.quotes && peek() == '"') {
    read_quoted(cell);
    return cell;
  }
  for (;;) {
    const int byte = peek();
    if (byte == kEnd || byte == '\r' || byte == '\n' ||
        byte == static_cast<unsigned char>(format_.separator)) {
      return cell;
    }
    cell += static_cast<char>(take());
  }
}

bool CsvReader::next(std::vector<std::string>& cells) {
  cells.clear();
  do {
    if (peek() == kEnd) return false;
    record_bytes_ = 0;
    record_line_ = line_;
  } while (at_line_end());
  for (;;) {
    cells.push_back(read_cell());
    if (at_line_end()) return true;
    take();  // the separator
  }
}

}  // namespace tandem::internal
