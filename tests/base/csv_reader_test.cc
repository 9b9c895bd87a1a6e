#include "base/csv_reader.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/errors.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using internal::CsvReader;
using testing_support::message_of;
using Cells = std::vector<std::string>;

// The text in pieces of `piece` bytes, so that every boundary falls somewhere.
internal::ByteSource text_source(std::string text, std::size_t piece) {
  return [text = std::move(text), piece, at = std::size_t{0}](char* data, std::size_t bytes) mutable {
    const std::size_t n = std::min({piece, bytes, text.size() - at});
    std::memcpy(data, text.data() + at, n);
    at += n;
    return n;
  };
}

std::vector<Cells> read_all(const std::string& text, std::size_t piece = 1000) {
  CsvReader reader("t.csv", text_source(text, piece));
  std::vector<Cells> records;
  for (Cells cells; reader.next(cells);) records.push_back(cells);
  return records;
}

TEST(CsvReaderTest, ReadsQuotesLineEndsAndEmptyCellsWhereverABufferEnds) {
  const std::string text =
      "\xEF\xBB\xBF"
      "a,b\r\n\"x, \"\"y\"\"\nz\",\n\n,2\r3,4";
  const std::vector<Cells> expected{{"a", "b"}, {"x, \"y\"\nz", ""}, {"", "2"}, {"3", "4"}};
  for (const std::size_t piece : {1, 2, 3, 5, 1000}) {
    if (piece >= 3) {
      EXPECT_EQ(read_all(text, piece), expected) << piece;
    }
    EXPECT_EQ(read_all(text.substr(3), piece), expected) << piece;
  }
}

TEST(CsvReaderTest, NamesTheLineOnWhichARecordBegins) {
  CsvReader reader("t.csv", text_source("a\n\n\"two\nlines\"\nb\n", 1000));
  Cells cells;
  std::vector<std::string> places;
  while (reader.next(cells)) places.push_back(reader.where());
  EXPECT_EQ(places, (Cells{"t.csv:1", "t.csv:3", "t.csv:5"}));
}

TEST(CsvReaderTest, RefusesQuotesThatMakeNoSenseAndWhatIsNoCsv) {
  EXPECT_EQ(message_of<DataLoss>([] { read_all("a\n\"b"); }), "t.csv:2: a quote is opened and never closed");
  EXPECT_NE(message_of<DataLoss>([] { read_all("\"a\"b\n"); }).find("t.csv:1: 'b' after a closing quote"),
            std::string::npos);
  EXPECT_NE(message_of<DataLoss>([] { read_all(std::string(3 << 20, 'x')); }).find("expected a CSV file"),
            std::string::npos);
  EXPECT_TRUE(read_all("").empty());
}

}  // namespace
}  // namespace tandem
