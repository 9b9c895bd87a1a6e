#include "tandem/data/tfrecord.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/crc32c.h"
#include "data/auto_shard.h"
#include "data/support.h"
#include "support/peak_memory.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

const ExampleSpec kSpec{{"values", {.type = FeatureType::kFloat, .shape = {{2}}}},
                        {"label", {.type = FeatureType::kInt64, .shape = {{}}}}};

// Example i has the values i, i + 0.5 and the label i.
std::string example(std::int64_t i) {
  return encode_example({{"values", torch::tensor({float(i), i + 0.5f})}, {"label", torch::tensor(i)}});
}

std::vector<std::string> write_examples(const std::string& prefix, int shards, int count,
                                        const std::string& compression = {}) {
  TfRecordWriter writer(prefix, {.compression = compression, .shards = shards});
  for (int i = 0; i < count; ++i) writer.write(example(i));
  writer.close();
  return tfrecord_shards(prefix);
}

std::vector<std::int64_t> labels_of(const Dataset& dataset, IterateOptions options = {}) {
  std::vector<std::int64_t> labels;
  auto elements = dataset.iterate(options);
  while (const auto element = elements.next()) {
    labels.push_back(element->y.tensor().item<std::int64_t>());
    EXPECT_TRUE(element->x.tensor().equal(torch::tensor({float(labels.back()), labels.back() + 0.5f})));
  }
  return labels;
}

using Labels = std::vector<std::int64_t>;

TEST(TfRecordDatasetTest, ReadsTheExamplesOfShardedFilesPackedOrNot) {
  for (const std::string compression : {"", "GZIP", "ZLIB"}) {
    const TempFolder folder;
    const auto files = write_examples(folder.file("train"), 3, 7, compression);
    EXPECT_EQ(files.size(), 3u);
    const auto dataset = tfrecord_examples(files, kSpec, "label", {.compression = compression});
    EXPECT_EQ(labels_of(dataset), (Labels{0, 3, 6, 1, 4, 2, 5})) << compression;
    auto elements = dataset.iterate();
    elements.seek({.element = 5});
    EXPECT_EQ(elements.next()->y.tensor().item<int>(), 2);
  }
}

TEST(TfRecordDatasetTest, ReadsWhatTensorFlowWrote) {
  const std::string oracles = std::string(TANDEM_TEST_FILES) + "/oracles/examples.tfrecord";
  const auto count = [](const Dataset& dataset) {
    std::int64_t records = 0;
    auto elements = dataset.iterate();
    while (const auto element = elements.next()) {
      EXPECT_EQ(element->x.tensor().scalar_type(), at::kByte);
      ++records;
    }
    return records;
  };
  const std::int64_t records = count(tfrecord({oracles}));
  EXPECT_GT(records, 0);
  EXPECT_EQ(count(tfrecord({oracles + ".gz"}, {.compression = "GZIP"})), records);
}

TEST(TfRecordDatasetTest, SharesTheFilesAmongWorkers) {
  const TempFolder folder;
  const auto dataset =
      tfrecord_examples(write_examples(folder.file("train"), 4, 12), kSpec, "label").batch(2);
  Labels all;
  for (int worker = 0; worker < 2; ++worker) {
    const auto sharded = internal::auto_shard(dataset, 2, worker);
    EXPECT_EQ(sharded.chosen, AutoShardPolicy::kFile);
    auto elements = sharded.dataset.iterate();
    while (const auto element = elements.next()) {
      for (std::int64_t i = 0; i < element->rows(); ++i) all.push_back(element->y.tensor()[i].item<int>());
    }
    EXPECT_EQ(all.size(), 6u * (worker + 1));
  }
  std::ranges::sort(all);
  EXPECT_EQ(all, (Labels{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(TfRecordDatasetTest, FillsInDefaultsAndLengths) {
  const TempFolder folder;
  {
    TfRecordWriter writer(folder.file("one"));
    writer.write(encode_example({{"words", torch::tensor({7, 8, 9}, torch::kLong)},
                                 {"raw", torch::tensor({1, 2, 3, 4}, torch::kByte)}}));
    writer.close();
  }
  const ExampleSpec spec{
      {"words", {.type = FeatureType::kInt64}},
      {"none", {.type = FeatureType::kFloat}},
      {"missing", {.type = FeatureType::kFloat, .shape = {{1}}, .default_value = torch::tensor({2.5f})}},
      {"raw", {.type = FeatureType::kBytes, .shape = {{2, 2}}}}};
  auto elements = tfrecord_examples({folder.file("one")}, spec).iterate();
  const auto read = elements.next();
  EXPECT_TRUE(read->x["words"].equal(torch::tensor({7, 8, 9}, torch::kLong)));
  EXPECT_EQ(read->x["none"].sizes(), (at::IntArrayRef{0}));
  EXPECT_TRUE(read->x["missing"].equal(torch::tensor({2.5f})));
  EXPECT_TRUE(read->x["raw"].equal(torch::tensor({{1, 2}, {3, 4}}, torch::kByte)));
}

TEST(TfRecordDatasetTest, NamesTheRecordAndTheFeatureThatDoNotFit) {
  const TempFolder folder;
  const std::string file = folder.file("mixed");
  {
    TfRecordWriter writer(file);
    writer.write(example(0));
    writer.write(encode_example({{"values", torch::tensor({1.0f, 2.0f})}, {"label", torch::tensor({1.0f})}}));
    writer.close();
  }
  const auto fails = [&](ExampleSpec spec, const std::string& name, const std::string& label = {}) {
    return message_of<InvalidArgument>([&] {
      auto elements = tfrecord_examples({name}, std::move(spec), label).iterate();
      while (elements.next()) continue;
    });
  };
  EXPECT_EQ(fails(kSpec, file, "label"),
            "feature \"label\" of record 1 of \"" + file + "\" is a float list: expected an int64 list");
  EXPECT_EQ(fails({{"values", {.shape = {{3}}}}}, file),
            "record 0 of \"" + file + "\": feature \"values\" has 2 float values: expected 3, of shape [3]");
  EXPECT_EQ(fails({{"colour", {.shape = {{}}}}}, file),
            "record 0 of \"" + file + "\" has no feature \"colour\"; it has: label, values");

  {
    TfRecordWriter writer(folder.file("text"));
    writer.write("no Example");
    writer.close();
  }
  EXPECT_EQ(message_of<DataLoss>(
                [&] { tfrecord_examples({folder.file("text")}, kSpec, "label").iterate().next(); }),
            "record 0 of \"" + folder.file("text") +
                "\" is no tf.train.Example: a field is of a kind that there is not");
}

TEST(TfRecordDatasetTest, RefusesADamagedRecordByFileAndOffset) {
  const TempFolder folder;
  const std::string file = write_examples(folder.file("train"), 1, 3).front();
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const std::size_t record = whole.size() / 3;  // all are of the same length
  const auto complaint = [&](const std::string& bytes) {
    write_file(file, bytes);
    return message_of<DataLoss>([&] { labels_of(tfrecord_examples({file}, kSpec, "label")); });
  };
  const auto changed = [&](std::size_t at) {
    std::string bytes = whole;
    bytes[at] ^= 1;
    return bytes;
  };
  const std::string second = fmt::format("the record at offset {} of \"{}\" is damaged: ", record, file);
  EXPECT_EQ(complaint(changed(record)), second + "the checksum of its length is wrong");
  EXPECT_EQ(complaint(changed(record + 8)), second + "the checksum of its length is wrong");
  EXPECT_EQ(complaint(changed(record + 12)), second + "the checksum of its bytes is wrong");
  EXPECT_EQ(complaint(changed(2 * record - 1)), second + "the checksum of its bytes is wrong");
  EXPECT_EQ(complaint(whole.substr(0, whole.size() - 3)),
            fmt::format("\"{}\" ends after {} of the {} bytes of the record at offset {}", file, record - 3,
                        record, 2 * record));
  // A length with the right checksum, beyond what is read.
  std::string huge("\0\0\0\0\0\0\0\x40", 8);
  const std::uint32_t sum = internal::masked_crc32c(huge.data(), huge.size());
  for (int shift = 0; shift < 32; shift += 8) huge += static_cast<char>(sum >> shift);
  EXPECT_EQ(
      complaint(huge + whole),
      "the record at offset 0 of \"" + file +
          "\" is damaged: it says to be 4611686018427387904 bytes long, and at most 1073741824 are read");
}

// A file of 160 MiB goes by in a fraction of that; that the measure would show more is seen where it is kept.
TEST(TfRecordDatasetTest, StreamsAFileThatIsLargerThanTheMemoryItTakes) {
  constexpr std::int64_t kMiB = 1 << 20;
  constexpr int kRecords = 160;
  const TempFolder folder;
  {
    TfRecordWriter writer(folder.file("large"));
    for (int i = 0; i < kRecords; ++i) writer.write(std::string(kMiB, static_cast<char>(i)));
    writer.close();
  }
  const auto memory_for = [&](const Dataset& dataset) {
    testing_support::forget_peak_memory();
    const auto before = static_cast<std::int64_t>(testing_support::peak_memory(getpid()));
    std::int64_t rows = 0;
    auto batches = dataset.iterate();
    while (const auto batch = batches.next()) {
      for (std::int64_t row = 0; row < batch->rows(); ++row, ++rows) {
        EXPECT_EQ(batch->x.tensor()[row][kMiB - 1].item<int>(), rows);
      }
    }
    EXPECT_EQ(rows, kRecords);
    return static_cast<std::int64_t>(testing_support::peak_memory(getpid())) - before;
  };
  const auto records = tfrecord({folder.file("large")});
  EXPECT_LT(memory_for(records.batch(4).prefetch(2)), 64 * kMiB);
  EXPECT_GT(memory_for(records.cache().batch(4)), 128 * kMiB);
}

TEST(TfRecordDatasetTest, RefusesASpecThatCannotBe) {
  EXPECT_THROW(tfrecord({}), InvalidArgument);
  EXPECT_THROW(tfrecord({"f"}, {.compression = "LZ4"}), InvalidArgument);
  EXPECT_THROW(tfrecord_examples({"f"}, {}), InvalidArgument);
  EXPECT_THROW(tfrecord_examples({"f"}, kSpec, "other"), InvalidArgument);
  EXPECT_THROW(tfrecord_examples({"f"}, {{"a", {.shape = {{-1}}}}}), InvalidArgument);
  EXPECT_THROW(tfrecord_examples({"f"}, {{"a", {.shape = {{2}}, .default_value = torch::tensor({1.0f})}}}),
               InvalidArgument);
  EXPECT_THROW(encode_example({{"a", torch::tensor({1.0}, torch::kDouble)}}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::data
