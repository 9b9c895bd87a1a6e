#include "base/record_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "support/errors.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::TempFolder;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Hands out `bytes`, which may grow meanwhile.
RecordReader::Source source_of(const std::string& bytes) {
  return [&bytes, done = std::size_t{0}](char* data, std::size_t wanted) mutable {
    const std::size_t got = std::min(wanted, bytes.size() - done);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(done), got, data);
    done += got;
    return got;
  };
}

std::string records(const std::vector<std::string>& payloads) {
  std::string bytes;
  for (const auto& payload : payloads) append_record(bytes, payload);
  return bytes;
}

TEST(RecordFile, ReadsWhatItWrote) {
  const TempFolder folder;
  const std::vector<std::string> payloads{"one", "", std::string(700'000, 'x'), std::string("\0\xff", 2)};
  RecordWriter writer(AppendFile(folder.file("a"), Existing::kRefuse));
  for (const auto& payload : payloads) writer.append(payload);
  EXPECT_EQ(read(folder.file("a")), "");
  EXPECT_EQ(writer.buffered_bytes(), 700'005u + 4 * 16);
  writer.flush();
  EXPECT_EQ(writer.buffered_bytes(), 0u);

  RecordReader reader(folder.file("a"));
  for (const auto& payload : payloads) EXPECT_EQ(reader.next(), payload);
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_EQ(reader.offset(), std::filesystem::file_size(folder.file("a")));
}

TEST(RecordFile, HandsOutRecordsOfEverySizeWithoutACopy) {
  std::vector<std::string> payloads;
  for (std::size_t size = 1; size < 5'000'000; size = size * 3 + 1) {
    for (int i = 0; i < 3; ++i) payloads.emplace_back(size, static_cast<char>('a' + payloads.size()));
  }
  const std::string bytes = records(payloads);
  RecordReader reader("bytes", source_of(bytes));
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_EQ(reader.index(), static_cast<std::int64_t>(i));
    EXPECT_TRUE(reader.next_view() == payloads[i]) << i;
  }
  EXPECT_FALSE(reader.next_view());
  EXPECT_EQ(reader.offset(), bytes.size());
}

TEST(RecordFile, HasTheFramingOfTensorFlow) {
  const std::string expected(
      "\3\0\0\0\0\0\0\0\xb0\x99\x49\x0e"
      "abc"
      "\x6e\x57\xf1\x21",
      19);
  EXPECT_EQ(records({"abc"}), expected);
}

TEST(RecordFile, ReadsWhatTensorFlowWrote) {
  RecordReader reader(TANDEM_TEST_FILES "/oracles/examples.tfrecord");
  for (int i = 0; i < 5; ++i) {
    const auto record = reader.next();
    ASSERT_TRUE(record);
    EXPECT_NE(record->find("example " + std::to_string(i)), std::string::npos);
  }
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(RecordFile, WritesTheBytesThatTensorFlowWrote) {
  RecordReader reader(TANDEM_TEST_FILES "/oracles/examples.tfrecord");
  std::string again;
  while (const auto record = reader.next()) append_record(again, *record);
  EXPECT_EQ(again, read(TANDEM_TEST_FILES "/oracles/examples.tfrecord"));
}

TEST(RecordFile, TellsATornEndWhereverTheFileEnds) {
  const std::string whole = records({"first", "second"});
  const std::size_t second = records({"first"}).size();
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    RecordReader reader("part", source_of(part));
    if (size >= second) {
      EXPECT_EQ(reader.next(), "first");
    }
    if (size == whole.size()) {
      EXPECT_EQ(reader.next(), "second");
    }
    if (size == 0 || size == second || size == whole.size()) {
      EXPECT_EQ(reader.next(), std::nullopt) << size;
    } else {
      EXPECT_THROW(reader.next(), TornRecord) << size;
    }
  }
}

TEST(RecordFile, SaysWhereTheFileEnds) {
  const std::string whole = records({"first", "second"});
  const std::string in_header = whole.substr(0, 21 + 5);
  RecordReader a("a", source_of(in_header));
  a.next();
  EXPECT_EQ(message_of<TornRecord>([&] { a.next(); }),
            "\"a\" ends after 5 of the 12 bytes that begin the record at offset 21");
  const std::string in_bytes = whole.substr(0, 21 + 15);
  RecordReader b("b", source_of(in_bytes));
  b.next();
  EXPECT_EQ(message_of<TornRecord>([&] { b.next(); }),
            "\"b\" ends after 15 of the 22 bytes of the record at offset 21");
}

TEST(RecordFile, GoesOnWhenTheFileHasGrown) {
  const std::string whole = records({"first", "second"});
  std::string bytes;
  RecordReader reader("growing", source_of(bytes));
  std::vector<std::string> got;
  for (const char byte : whole) {
    bytes += byte;
    try {
      while (const auto record = reader.next()) got.push_back(*record);
    } catch (const TornRecord&) {
    }
  }
  EXPECT_EQ(got, (std::vector<std::string>{"first", "second"}));
}

TEST(RecordFile, FollowsAFileThatGrows) {
  const TempFolder folder;
  AppendFile file(folder.file("a"), Existing::kRefuse);
  RecordReader reader(folder.file("a"));
  EXPECT_EQ(reader.next(), std::nullopt);
  const std::string bytes = records({"late"});
  file.append(bytes.substr(0, 14));
  EXPECT_THROW(reader.next(), TornRecord);
  file.append(bytes.substr(14));
  EXPECT_EQ(reader.next(), "late");
}

TEST(RecordFile, NoticesEveryWrongBit) {
  const std::string whole = records({"some bytes"});
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    RecordReader reader("bits", source_of(bytes));
    try {
      reader.next();
      ADD_FAILURE() << "bit " << bit;
    } catch (const TornRecord&) {
      ADD_FAILURE() << "bit " << bit << " passes for a torn end";
    } catch (const DataLoss&) {
    }
  }
}

TEST(RecordFile, SaysWhatIsDamagedAndStaysThere) {
  std::string bytes = records({"first", "second"});
  bytes[21 + 12] ^= 1;
  RecordReader reader("bytes", source_of(bytes));
  EXPECT_EQ(reader.next(), "first");
  const std::string message =
      "the record at offset 21 of \"bytes\" is damaged: the checksum of its bytes is wrong";
  EXPECT_EQ(message_of<DataLoss>([&] { reader.next(); }), message);
  EXPECT_EQ(message_of<DataLoss>([&] { reader.next(); }), message);

  std::string zeros(64, '\0');  // the end of a file after a power cut
  RecordReader after_power_cut("zeros", source_of(zeros));
  EXPECT_EQ(message_of<DataLoss>([&] { after_power_cut.next(); }),
            "the record at offset 0 of \"zeros\" is damaged: the checksum of its length is wrong");
}

TEST(RecordFile, RefusesARecordThatIsTooLong) {
  const std::string bytes = records({std::string(101, 'x')});
  RecordReader reader("long", source_of(bytes), {.max_record_bytes = 100});
  EXPECT_EQ(
      message_of<DataLoss>([&] { reader.next(); }),
      "the record at offset 0 of \"long\" is damaged: it says to be 101 bytes long, and at most 100 are "
      "read");
  RecordReader just("just", source_of(bytes), {.max_record_bytes = 101});
  EXPECT_EQ(just.next()->size(), 101u);
}

TEST(RecordFile, NamesAFileThatCannotBeRead) {
  const TempFolder folder;
  EXPECT_EQ(message_of<NotFound>([&] { RecordReader(folder.file("none")); }),
            "cannot read \"" + folder.file("none") + "\": No such file or directory");
  RecordReader reader(folder.path());
  EXPECT_EQ(message_of<NotFound>([&] { reader.next(); }),
            "cannot read \"" + folder.path() + "\": Is a directory");
}

}  // namespace
}  // namespace tandem::internal
