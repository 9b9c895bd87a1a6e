// Any bytes as a CSV file: it makes no difference in what pieces they come; what is read, written again with
// every cell in quotes, reads the same; an error is one line that names the file.
#include "base/csv_reader.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using fuzz::require;

struct Outcome {
  std::vector<std::vector<std::string>> records = {};
  std::string error = {};

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// `piece`: how many bytes come at once, after the first three, which a byte order mark may be.
Outcome read(const std::string& bytes, std::size_t piece) {
  std::size_t done = 0;
  Outcome outcome;
  try {
    internal::CsvReader reader("fuzz", [&](char* data, std::size_t wanted) {
      const std::size_t got =
          std::min({wanted, done == 0 ? std::max<std::size_t>(piece, 3) : piece, bytes.size() - done});
      std::copy_n(bytes.data() + done, got, data);
      done += got;
      return got;
    });
    for (std::vector<std::string> cells; reader.next(cells);) outcome.records.push_back(cells);
  } catch (const DataLoss& error) {
    outcome.error = error.what();
    require(outcome.error.starts_with("fuzz:"), "an error that does not name the file");
  }
  return outcome;
}

std::string written(const std::vector<std::vector<std::string>>& records) {
  std::string text;
  for (const auto& cells : records) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      text += i == 0 ? "\"" : ",\"";
      for (const char c : cells[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += '\n';
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const Outcome whole = read(bytes, 1 << 16);
  require(whole == read(bytes, 1), "other records when the bytes come one by one");
  for (const auto& cells : whole.records) require(!cells.empty(), "a record without cells");
  const Outcome again = read(written(whole.records), 7);
  require(again.error.empty() && again.records == whole.records, "other records when they are written again");
  return 0;
}
