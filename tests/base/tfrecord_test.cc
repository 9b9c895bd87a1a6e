#include "base/tfrecord.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/errors.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::TempFolder;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<std::string> records_of(const std::string& path, Compression compression = Compression::kNone) {
  RecordReader reader = open_tfrecord(path, compression);
  std::vector<std::string> records;
  while (const auto record = reader.next_view()) records.emplace_back(*record);
  EXPECT_EQ(reader.index(), std::ssize(records));
  return records;
}

std::vector<std::string> files_in(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TfRecord, ReadsTheFilesThatTensorFlowWrote) {
  const std::string plain = TANDEM_TEST_FILES "/oracles/examples.tfrecord";
  const auto expected = records_of(plain);
  ASSERT_EQ(expected.size(), 5u);
  EXPECT_EQ(records_of(plain + ".gz", Compression::kGzip), expected);
  // What TensorFlow wrote of "one" and "two" with compression_type="ZLIB".
  const std::string zlib(
      "\x78\x9c\x63\x66\x80\x80\x0d\x33\x3d\xf9\xf2\xf3\x52\x19\x1d\x42\x39\x98\x91\x84\x4a\xca\xf3\x3b\x27"
      "\x9c\xe4\x04\x00\x7b\x03\x08\x6c",
      33);
  const TempFolder folder;
  write_file(folder.file("z"), zlib);
  EXPECT_EQ(records_of(folder.file("z"), Compression::kZlib), (std::vector<std::string>{"one", "two"}));
}

TEST(TfRecord, WritesTheBytesThatTensorFlowWrote) {
  const std::string oracle = TANDEM_TEST_FILES "/oracles/examples.tfrecord";
  const TempFolder folder;
  TfRecordWriter writer(folder.file("a"));
  for (const auto& record : records_of(oracle)) writer.append(record);
  EXPECT_EQ(writer.records(), 5);
  writer.close();
  EXPECT_EQ(read_file(folder.file("a")), read_file(oracle));
}

TEST(TfRecord, ReadsWhatItWrote) {
  const TempFolder folder;
  const std::vector<std::string> records{"one", "", std::string(3'000'000, 'x'), std::string("\0\xff", 2)};
  for (const Compression compression : {Compression::kNone, Compression::kGzip, Compression::kZlib}) {
    TfRecordWriter writer(folder.file("a"), compression);
    for (const auto& record : records) writer.append(record);
    writer.close();
    EXPECT_EQ(records_of(folder.file("a"), compression), records);
  }
  EXPECT_EQ(files_in(folder), std::vector<std::string>{"a"});
}

TEST(TfRecord, HasItsNameOnlyOnceItIsWhole) {
  const TempFolder folder;
  write_file(folder.file("a"), "what was there before");
  {
    TfRecordWriter writer(folder.file("a"));
    writer.append(std::string(3'000'000, 'x'));
    EXPECT_EQ(read_file(folder.file("a")), "what was there before");
  }
  EXPECT_EQ(files_in(folder), std::vector<std::string>{"a"});
  EXPECT_EQ(read_file(folder.file("a")), "what was there before");
  EXPECT_THROW(TfRecordWriter(folder.file("none/a")), NotFound);
}

TEST(TfRecord, SaysWhenItIsReadWithTheWrongCompression) {
  const TempFolder folder;
  TfRecordWriter gzip(folder.file("gzip"), Compression::kGzip);
  gzip.append("record");
  gzip.close();
  EXPECT_EQ(
      message_of<DataLoss>([&] { records_of(folder.file("gzip")); }),
      "the record at offset 0 of \"" + folder.file("gzip") +
          "\" is damaged: the checksum of its length is wrong, because it is a GZIP file: read it as one");
  TfRecordWriter plain(folder.file("plain"));
  plain.append("record");
  plain.close();
  EXPECT_EQ(message_of<DataLoss>([&] { records_of(folder.file("plain"), Compression::kGzip); }),
            "\"" + folder.file("plain") + "\", read as GZIP, is no such file (incorrect header check)");
}

TEST(TfRecord, ReadsUpToWhereAGzipFileIsCutOff) {
  const TempFolder folder;
  TfRecordWriter writer(folder.file("a"), Compression::kGzip);
  for (int i = 0; i < 1000; ++i) writer.append("record " + std::to_string(i));
  writer.close();
  const std::string whole = read_file(folder.file("a"));
  write_file(folder.file("a"), whole.substr(0, whole.size() / 2));
  RecordReader reader = open_tfrecord(folder.file("a"), Compression::kGzip);
  EXPECT_EQ(message_of<DataLoss>([&] {
              while (reader.next_view()) {
              }
            }),
            "\"" + folder.file("a") + "\", read as GZIP, is cut off");
  EXPECT_GT(reader.index(), 100);
}

TEST(TfRecord, DealsRecordsOutToShards) {
  const TempFolder folder;
  ShardedTfRecordWriter writer(folder.file("train"), 3, Compression::kGzip);
  for (const char* record : {"0", "1", "2", "3", "4"}) writer.append(record);
  EXPECT_THROW(find_shards(folder.file("train")), NotFound);
  writer.close();
  const auto shards = find_shards(folder.file("train"));
  ASSERT_EQ(shards, shard_names(folder.file("train"), 3));
  EXPECT_EQ(shards[2], folder.file("train-00002-of-00003"));
  EXPECT_EQ(records_of(shards[0], Compression::kGzip), (std::vector<std::string>{"0", "3"}));
  EXPECT_EQ(records_of(shards[1], Compression::kGzip), (std::vector<std::string>{"1", "4"}));
  EXPECT_EQ(records_of(shards[2], Compression::kGzip), (std::vector<std::string>{"2"}));
}

TEST(TfRecord, SaysWhichShardsAreMissing) {
  const TempFolder folder;
  const std::string prefix = folder.file("train");
  EXPECT_EQ(message_of<NotFound>([&] { find_shards(prefix); }),
            "there is no file \"" + prefix + "-00000-of-NNNNN\", of whatever number");
  for (const char* name : {"train-00000-of-00003", "train-00002-of-00003", "train-00003-of-00003",
                           "train-1-of-2", "train", "trained-00000-of-00009"}) {
    write_file(folder.file(name), "");
  }
  EXPECT_EQ(message_of<NotFound>([&] { find_shards(prefix); }),
            "\"" + prefix + "-00001-of-00003\" is missing: 2 of 3 files are there");
  write_file(folder.file("train-00001-of-00003"), "");
  EXPECT_EQ(find_shards(prefix).size(), 3u);
  write_file(folder.file("train-00000-of-00002"), "");
  EXPECT_EQ(message_of<InvalidArgument>([&] { find_shards(prefix); }),
            "\"" + prefix + "\" names a set of 2 files and one of 3: remove one of them");
  EXPECT_EQ(message_of<InvalidArgument>([&] { shard_names("a", 0); }),
            "\"a\" in 0 files: expected 1 to 99999");
  EXPECT_THROW(find_shards(folder.file("none/train")), NotFound);
}

}  // namespace
}  // namespace tandem::internal
