#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "support/errors.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ShardSummary shard(int index, int count, const std::string& tensor) {
  return {.index = index,
          .count = count,
          .bytes = kChunkBytes + 100,
          .crc32c = {0x1f, 0xdeadbeef},
          .tensors = {{tensor, "U8", {static_cast<std::int64_t>(kChunkBytes) + 20}, 80, kChunkBytes + 100}}};
}

Manifest example() {
  return {.id = {1200, 7},
          .saved_at = 1'700'000'000,
          .shards = {shard(0, 2, "a"), shard(1, 2, "b")},
          .meta = R"({"epoch": 3, "positions": [1, 2], "seed": 18446744073709551615, "rate": 0.1})"};
}

TEST(CheckpointIdTest, NamesItsFolder) {
  EXPECT_EQ((CheckpointId{1200, 7}.folder()), "step-000000001200.g000007");
  EXPECT_EQ((CheckpointId{1200, 7}.text()), "step 1200 g7");
  EXPECT_EQ(CheckpointId::parse("step-000000001200.g000007"), (CheckpointId{1200, 7}));
  EXPECT_EQ(CheckpointId::parse("step-999999999999.g999999"), (CheckpointId{999'999'999'999, 999'999}));
  for (const char* name :
       {"", "step-1200.g7", "step-000000001200.g00000x", "step-00000000120x.g000007",
        "step-0000000-1200.g00007", "step-+00000001200.g000007", "stop-000000001200.g000007",
        "step-000000001200-g000007", "step-000000001200.g0000007", ".tmp-0123456789abcdef"}) {
    EXPECT_EQ(CheckpointId::parse(name), std::nullopt) << name;
  }
  EXPECT_LT((CheckpointId{1, 9}), (CheckpointId{2, 1}));
  EXPECT_LT((CheckpointId{2, 1}), (CheckpointId{2, 2}));
  EXPECT_THROW(check_id({-1, 0}), InvalidArgument);
  EXPECT_THROW(check_id({1'000'000'000'000, 0}), InvalidArgument);
  EXPECT_THROW(check_id({0, 1'000'000}), InvalidArgument);
}

TEST(ManifestTest, ReadsBackTheSame) {
  const std::string text = make_manifest(example());
  const Manifest again = parse_manifest(text);
  EXPECT_EQ(make_manifest(again), text);
  EXPECT_EQ(again.id, (CheckpointId{1200, 7}));
  EXPECT_EQ(again.shards[1].crc32c[1], 0xdeadbeefu);
  EXPECT_EQ(again.shards[1].tensors[0].name, "b");
  const auto meta = nlohmann::json::parse(again.meta);
  EXPECT_EQ(meta["seed"], 18446744073709551615u);
  EXPECT_EQ(meta["rate"], 0.1);
}

TEST(ManifestTest, RefusesShardsThatDoNotFitTogether) {
  const auto wrong = [](auto change) {
    Manifest manifest = example();
    change(manifest);
    return message_of<InvalidArgument>([&] { make_manifest(manifest); });
  };
  EXPECT_TRUE(has(wrong([](Manifest& m) { m.shards.clear(); }), "there is no shard"));
  EXPECT_TRUE(has(wrong([](Manifest& m) { m.shards.pop_back(); }), "shard-0-of-2 is number 0 of 1"));
  EXPECT_TRUE(has(wrong([](Manifest& m) { m.shards[1].index = 0; }), "shard-0-of-2 is number 1"));
  EXPECT_TRUE(has(wrong([](Manifest& m) { m.shards[1] = shard(1, 2, "a"); }), "tensor \"a\" is there twice"));
  EXPECT_TRUE(
      has(wrong([](Manifest& m) { m.shards[0].error = "full"; }), "shard-0-of-2 was not written: full"));
  EXPECT_TRUE(has(wrong([](Manifest& m) { m.shards[0].crc32c.pop_back(); }), "and 1 checksums"));
  EXPECT_TRUE(has(wrong([](Manifest& m) { ++m.shards[0].bytes; }), "do not fit"));
  EXPECT_TRUE(has(wrong([](Manifest& m) { m.meta = "[]"; }), "not an object"));
  EXPECT_TRUE(has(wrong([](Manifest& m) { m.meta = "{"; }), "not JSON"));
  EXPECT_TRUE(has(wrong([](Manifest& m) { m.meta = R"({"a":1,"a":2})"; }), "there twice"));
  EXPECT_TRUE(
      has(wrong([](Manifest& m) { m.meta = R"({"a":)" + std::string(70, '[') + std::string(70, ']') + "}"; }),
          "nested more than 64 deep"));
}

// Every value of another type, every key left out: never anything but DataLoss.
TEST(ManifestTest, RefusesWhatItCannotHaveWritten) {
  const auto whole = nlohmann::json::parse(make_manifest(example()));
  int refused = 0;
  const auto expect_refusal = [&](const nlohmann::json& json, const std::string& what) {
    const std::string line = message_of<DataLoss>([&] { parse_manifest(json.dump()); });
    EXPECT_EQ(line.find("manifest.json: "), 0u) << what << ": " << line;
    ++refused;
  };
  const auto flat = whole.flatten();
  for (const auto& [path, value] : flat.items()) {
    if (path.starts_with("/meta") || path.ends_with("/file")) continue;
    const nlohmann::json::json_pointer pointer(path);
    for (const auto& other : {nlohmann::json(nullptr), nlohmann::json(-1), nlohmann::json(1.5),
                              nlohmann::json("x"), nlohmann::json::array(), nlohmann::json::object()}) {
      nlohmann::json changed = whole;
      changed[pointer] = other;
      if (path.ends_with("/name") && other == "x") continue;
      expect_refusal(changed, path + " = " + other.dump());
    }
    nlohmann::json without = whole;
    nlohmann::json& parent = without.at(pointer.parent_pointer());
    if (!parent.is_object()) continue;
    parent.erase(parent.find(pointer.back()));
    expect_refusal(without, "without " + path);
  }
  EXPECT_GT(refused, 100);
  EXPECT_THROW(parse_manifest(""), DataLoss);
  EXPECT_THROW(parse_manifest("[]"), DataLoss);
  EXPECT_THROW(parse_manifest(R"({"format":"tandem-checkpoint-1","format":"tandem-checkpoint-1"})"),
               DataLoss);
}

TEST(ShardSummaryTest, TravelsAsBytes) {
  const ShardSummary one = shard(1, 3, "größe");
  EXPECT_EQ(ShardSummary::from_bytes(one.to_bytes()).to_bytes(), one.to_bytes());
  EXPECT_EQ(one.file(), "shard-1-of-3.safetensors");
  const ShardSummary failed{.index = 1, .count = 2, .error = "cannot write \"\xff\": full"};
  const ShardSummary again = ShardSummary::from_bytes(failed.to_bytes());
  EXPECT_TRUE(has(again.error, "full"));
  EXPECT_EQ(again.index, 1);
  for (const char* bytes :
       {"", "{}", "[]", R"({"index":2,"count":2,"error":"x"})", R"({"index":0,"count":1,"error":""})",
        R"({"index":0,"count":1})", R"({"index":0,"count":200000,"error":"x"})"}) {
    EXPECT_THROW(ShardSummary::from_bytes(bytes), DataLoss) << bytes;
  }
}

TEST(CommitTest, BelongsToItsManifest) {
  const std::string manifest = make_manifest(example());
  const std::string commit = make_commit(manifest, "");
  EXPECT_EQ(commit.size(), 72u);
  EXPECT_NO_THROW(check_commit(commit, manifest, ""));
  EXPECT_TRUE(
      has(message_of<DataLoss>([&] { check_commit(commit, manifest + " ", ""); }), "manifest.json, sha256"));
  for (const std::string& wrong : {std::string(), commit.substr(0, 71), commit + "x\n", commit + commit,
                                   "\n" + commit, std::string("sha256 \n"), std::string(72, '\n')}) {
    EXPECT_TRUE(has(message_of<DataLoss>([&] { check_commit(wrong, manifest, ""); }), "COMMIT is not a line"))
        << wrong;
  }
}

TEST(CommitTest, IsSignedWithAKey) {
  const std::string manifest = make_manifest(example());
  const std::string commit = make_commit(manifest, "secret");
  EXPECT_NO_THROW(check_commit(commit, manifest, "secret"));
  EXPECT_NO_THROW(check_commit(commit, manifest, ""));
  EXPECT_TRUE(has(message_of<DataLoss>([&] { check_commit(commit, manifest, "other"); }), "not of this key"));
  EXPECT_TRUE(has(message_of<DataLoss>([&] { check_commit(make_commit(manifest, ""), manifest, "secret"); }),
                  "COMMIT has no hmac-sha256"));
}

TEST(ChunkChecksumsTest, AreOfEachChunkHoweverTheBytesCome) {
  std::vector<std::byte> bytes(2 * kChunkBytes + 5, std::byte{7});
  const auto checksums_in_pieces = [&](std::size_t piece) {
    ChunkChecksums checksums(true);
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      checksums.update(Bytes(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    ShardSummary summary;
    checksums.finish_into(summary);
    return summary;
  };
  const ShardSummary whole = checksums_in_pieces(bytes.size());
  ASSERT_EQ(whole.crc32c.size(), 3u);
  ASSERT_EQ(whole.sha256.size(), 3u);
  EXPECT_EQ(whole.crc32c[2], crc32c(bytes.data(), 5));
  EXPECT_EQ(whole.crc32c[0], crc32c(bytes.data(), kChunkBytes));
  EXPECT_EQ(checksums_in_pieces(1'000'003).crc32c, whole.crc32c);
  EXPECT_EQ(checksums_in_pieces(1'000'003).sha256, whole.sha256);
}

}  // namespace
}  // namespace tandem::internal
