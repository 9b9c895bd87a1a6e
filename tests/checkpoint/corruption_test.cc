// Files of a checkpoint that were changed behind its back: what is restored is right, or it is not restored.
// TANDEM_CORRUPTIONS says how many (tests/soak corruptions); TANDEM_SEED gives others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "checkpoint/support.h"
#include "support/memory_disk.h"

namespace tandem::internal {
namespace {

using testing_support::holds;
using testing_support::MemoryDisk;
using testing_support::State;

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() { return mix(state_ += kCounterStep); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(bits() % n); }

 private:
  std::uint64_t state_;
};

// Two checkpoints of three shards each; one shard has two chunks.
class Corruptions : public testing::Test {
 protected:
  static constexpr int kShards = 3;

  Corruptions() : store_("/run", {.files = disk_}) {
    for (const std::int64_t step : {1, 2}) {
      const PendingSave pending = store_.begin({step, 1});
      std::vector<ShardSummary> shards;
      for (int i = 0; i < kShards; ++i) {
        shards.push_back(store_.write_shard(pending.folder, {i, kShards}, state(step, i).bytes()));
      }
      EXPECT_TRUE(store_.commit(pending, shards, fmt::format(R"({{"step":{}}})", step)).ok());
    }
  }

  // Made once: filling them takes longer than reading them.
  static const State& state(std::int64_t step, int shard) {
    static std::map<std::pair<std::int64_t, int>, State> states;
    const auto seed = static_cast<std::uint64_t>(10 * step + shard);
    return states.try_emplace({step, shard}, seed, shard == 1 ? 1100 : 2, fmt::format("s{}.", shard))
        .first->second;
  }

  std::string path(std::int64_t step, const std::string& file) const {
    return fmt::format("/run/{}/{}", CheckpointId{step, 1}.folder(), file);
  }
  static std::string shard_file(std::size_t shard) {
    return fmt::format("shard-{}-of-{}.safetensors", shard, kShards);
  }
  std::string& contents(const std::string& file) { return disk_->contents(path(2, file)); }

  // Every value that comes is right; true if the whole checkpoint could be read.
  static bool is_right(const Checkpoint& checkpoint) {
    for (int i = 0; i < kShards; ++i) EXPECT_TRUE(holds(checkpoint, state(checkpoint.id().step, i)));
    EXPECT_EQ(checkpoint.meta(), fmt::format(R"({{"step":{}}})", checkpoint.id().step));
    return true;
  }

  // One tensor after the other: those that are not damaged are right.
  void expect_no_wrong_value() {
    try {
      const Checkpoint checkpoint = store_.open({2, 1});
      for (int i = 0; i < kShards; ++i) {
        const State& expected = state(2, i);
        for (const auto& tensor : expected.tensors()) {
          try {
            std::vector<std::byte> values(tensor.values.size());
            const std::vector<TensorRequest> request{{tensor.name, values}};
            checkpoint.read(request);
            EXPECT_EQ(values == tensor.values, true) << tensor.name;
          } catch (const DataLoss&) {
          }
        }
      }
    } catch (const DataLoss&) {
    }
  }

  void expect_found(const std::string& what) {
    SCOPED_TRACE(what);
    expect_no_wrong_value();
    const auto restored = store_.restore([&](const Checkpoint& checkpoint) { is_right(checkpoint); });
    ASSERT_TRUE(restored);
    EXPECT_EQ(restored->id.step, 1);
    ASSERT_EQ(restored->warnings.size(), 1u);
    const std::string& line = restored->warnings[0];
    EXPECT_TRUE(line.starts_with("checkpoint step 2 g1 is damaged: ")) << line;
    EXPECT_TRUE(line.ends_with("; using step 1 g1 (1 step older)")) << line;
    EXPECT_EQ(line.find_first_of("\n\r\t"), std::string::npos) << line;
    EXPECT_LT(line.size(), 1000u);
  }

  // Changes at least one byte in [begin, end).
  static std::string change(std::string& text, std::size_t begin, std::size_t end, Random& random) {
    const std::size_t at = begin + random.below(end - begin);
    const std::size_t length = std::min(end - at, std::size_t{1} << random.below(14));
    const std::string before = text;
    switch (random.below(5)) {
      case 0:
        text[at] ^= static_cast<char>(1u << random.below(8));
        break;
      case 1:
        std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), length, '\0');
        break;
      case 2:
        for (std::size_t i = at; i < at + length; ++i) text[i] = static_cast<char>(random.bits());
        break;
      case 3:
        text.erase(at, length);
        break;
      default:
        text.insert(at, before.substr(at, length));
    }
    if (text == before) text[at] ^= 1;
    return fmt::format("{} bytes at {}", length, at);
  }

  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  CheckpointStore store_;
};

TEST_F(Corruptions, AreFound) {
  const int rounds = number_from("TANDEM_CORRUPTIONS", 300);
  const auto seed = static_cast<std::uint64_t>(number_from("TANDEM_SEED", 1));
  std::vector<std::string> files{"COMMIT", "manifest.json"};
  for (std::size_t i = 0; i < kShards; ++i) files.push_back(shard_file(i));
  std::map<std::string, std::string> whole;
  for (const std::string& file : files) whole[file] = contents(file);

  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    Random random(seed_of_stream(seed, static_cast<std::uint64_t>(round)));
    std::string what = fmt::format("round {}, seed {}: ", round, seed);
    const std::string shard = shard_file(random.below(kShards));
    const std::string any = files[random.below(files.size())];
    std::vector<std::string> changed{any};
    std::string removed;
    switch (round % 10) {
      case 0: {
        const std::size_t header_end = store_.open({2, 1}).manifest().shards[0].tensors[0].begin;
        what += "header, " + change(contents(shard), 0, header_end, random);
        changed = {shard};
        break;
      }
      case 1:
        what += "manifest, " + change(contents("manifest.json"), 0, whole["manifest.json"].size(), random);
        changed = {"manifest.json"};
        break;
      case 2:
        what += "commit, " + change(contents("COMMIT"), 0, whole["COMMIT"].size(), random);
        changed = {"COMMIT"};
        break;
      case 3:
      case 4:
        what += "data, " + change(contents(shard), 0, whole[shard].size(), random);
        changed = {shard};
        break;
      case 5:
        contents(any).resize(random.below(whole[any].size()));
        what += fmt::format("{} cut to {}", any, contents(any).size());
        break;
      case 6:
        contents(any).append(1 + random.below(5000), static_cast<char>(random.bits()));
        what += any + " longer";
        break;
      case 7:
        removed = any;
        disk_->remove_file(path(2, any));
        what += any + " missing";
        break;
      case 8: {
        const std::size_t a = random.below(kShards), b = (a + 1 + random.below(kShards - 1)) % kShards;
        contents(shard_file(a)).swap(contents(shard_file(b)));
        what += fmt::format("shards {} and {} swapped", a, b);
        changed = {shard_file(a), shard_file(b)};
        break;
      }
      default: {
        // Files of another checkpoint: right in themselves.
        changed = {any};
        if (any == "COMMIT" || any == "manifest.json") changed = {"COMMIT", "manifest.json"};
        for (const std::string& file : changed) contents(file) = disk_->contents(path(1, file));
        what += changed[0] + " of another checkpoint";
      }
    }
    expect_found(what);
    if (!removed.empty()) disk_->create_file(path(2, removed));
    for (const std::string& file : changed) contents(file) = whole[file];
  }
  // Nothing of the test's own is left.
  EXPECT_EQ(store_.restore([&](const Checkpoint& checkpoint) { is_right(checkpoint); })->id.step, 2);
}

// A whole checkpoint under the name of another step.
TEST_F(Corruptions, OfTheNameAreFound) {
  disk_->rename("/run/step-000000000002.g000001", "/run/step-000000000003.g000001");
  const auto restored = store_.find_whole();
  EXPECT_EQ(restored->id.step, 1);
  EXPECT_EQ(
      restored->warnings[0],
      "checkpoint step 3 g1 is damaged: manifest.json is of step 2 g1; using step 1 g1 (2 steps older)");
}

TEST_F(Corruptions, ByFoldersInThePlaceOfFilesAreFound) {
  for (const char* file : {"COMMIT", "manifest.json", "shard-1-of-3.safetensors"}) {
    const std::string whole = contents(file);
    disk_->remove_file(path(2, file));
    disk_->create_folder(path(2, file));
    expect_found(file);
    disk_->remove_folder(path(2, file));
    disk_->create_file(path(2, file));
    contents(file) = whole;
  }
}

}  // namespace
}  // namespace tandem::internal
