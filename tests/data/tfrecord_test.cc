#include "tandem/data/tfrecord.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data/auto_shard.h"
#include "data/support.h"
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
  const std::string text = message_of<DataLoss>(
      [&] { tfrecord_examples({folder.file("text")}, kSpec, "label").iterate().next(); });
  EXPECT_NE(text.find("record 0 of \"" + folder.file("text") + "\""), std::string::npos) << text;
}

TEST(TfRecordDatasetTest, RefusesADamagedRecordByFileAndOffset) {
  const TempFolder folder;
  const std::string file = write_examples(folder.file("train"), 1, 3).front();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 3);
  EXPECT_NE(message_of<DataLoss>([&] { labels_of(tfrecord_examples({file}, kSpec, "label")); }).find(file),
            std::string::npos);
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
