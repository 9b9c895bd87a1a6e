#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_source.h"

namespace tandem::internal {

struct CsvFormat {
  char separator = ',';
  // Whether a cell may stand in double quotes: then it may hold separators and line ends, and "" is one
  // quote.
  bool quotes = true;
};

// The records of a CSV file one by one (RFC 4180), however long the file is: it keeps one record and a small
// buffer. Lines may end in CR LF; empty lines are passed over, and so is a byte order mark.
class CsvReader {
 public:
  // `name` begins the messages.
  CsvReader(std::string name, ByteSource source, CsvFormat format = {});

  // False at the end. Throws DataLoss, naming the line, for a quote that is never closed or followed by
  // something else, and for a record of more than 1 MiB, which is no CSV.
  bool next(std::vector<std::string>& cells);

  // "cars.csv:17": the line on which the last record begins, counted from 1.
  std::string where() const;
  std::int64_t line() const { return record_line_; }

 private:
  static constexpr int kEnd = -1;

  int peek();
  int take();
  bool at_line_end();
  std::string read_cell();
  void read_quoted(std::string& cell);

  std::string name_;
  ByteSource source_;
  CsvFormat format_;
  std::string buffer_;
  std::size_t place_ = 0;
  bool ended_ = false;
  std::int64_t line_ = 1;
  std::int64_t record_line_ = 1;
  std::size_t record_bytes_ = 0;
};

}  // namespace tandem::internal
