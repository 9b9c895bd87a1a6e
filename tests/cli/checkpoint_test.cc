#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/secret_file.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/float_values.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::ProcessResult;
using testing_support::run_process;
using testing_support::TempFolder;
using Json = nlohmann::json;

ProcessResult checkpoint(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {std::string(TANDEM_BIN) + "/tandem", "checkpoint"});
  return run_process(arguments);
}

std::string output(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

// The one line on standard error.
std::string refusal(const ProcessResult& result, int exit_code) {
  EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.err.find("tandem: "), 0u) << result.err;
  return result.err;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Values {
  std::vector<float> weight;
  std::vector<std::uint16_t> half;  // F16
  std::int64_t steps;
};

std::vector<internal::TensorBytes> tensors(const Values& values) {
  return {
      {"weight", "F32", {2, 2}, std::as_bytes(std::span(values.weight))},
      {"half", "F16", {static_cast<std::int64_t>(values.half.size())}, std::as_bytes(std::span(values.half))},
      {"steps", "I64", {}, std::as_bytes(std::span(&values.steps, 1))}};
}

// A run with checkpoints at steps 100 and 200.
class CheckpointCommand : public testing::Test {
 protected:
  CheckpointCommand() {
    internal::CheckpointStore store(run_, {.clock = [] { return std::int64_t{1'700'000'000}; }});
    EXPECT_TRUE(store.save({100, 1}, tensors(first_), R"({"epoch":1})").ok());
    EXPECT_TRUE(store.save({200, 2}, tensors(second_), R"({"epoch":2})").ok());
  }

  void damage(const std::string& file) const {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(-1, std::ios::end);
    stream.put('!');
  }

  const TempFolder folder_;
  const std::string run_ = folder_.file("run");
  const std::string first_path_ = run_ + "/step-000000000100.g000001";
  const std::string second_path_ = run_ + "/step-000000000200.g000002";
  const Values first_{{1, 2, 3, 4}, {0x3c00}, 100};     // 1.0
  const Values second_{{1, 2, 3.5, 4}, {0x4200}, 200};  // 3.0
};

TEST_F(CheckpointCommand, ListsTheCheckpointsOfARun) {
  const std::string text = output(checkpoint({"ls", run_}));
  EXPECT_EQ(text,
            "STEP  GENERATION  SAVED                  SIZE  SHARDS  TENSORS  STATE\n"
            " 200           2  2023-11-14 22:13:20Z  242 B       1        3  complete\n"
            " 100           1  2023-11-14 22:13:20Z  242 B       1        3  complete\n");
  const Json json = Json::parse(output(checkpoint({"ls", run_, "--json"})));
  EXPECT_EQ(json["folder"], run_);
  ASSERT_EQ(json["checkpoints"].size(), 2u);
  EXPECT_EQ(json["checkpoints"][0], (Json{{"step", 200},
                                          {"generation", 2},
                                          {"folder", "step-000000000200.g000002"},
                                          {"saved_at", 1'700'000'000},
                                          {"bytes", 242},
                                          {"shards", 1},
                                          {"tensors", 3},
                                          {"error", nullptr}}));
}

TEST_F(CheckpointCommand, ListsDamagedOnesAsSuch) {
  damage(second_path_ + "/COMMIT");
  EXPECT_TRUE(
      has(output(checkpoint({"ls", run_})), "checkpoint step 200 g2 is damaged: COMMIT is not a line"));
  const Json json = Json::parse(output(checkpoint({"ls", "--json", run_})));
  EXPECT_TRUE(has(json["checkpoints"][0]["error"], "COMMIT"));
  EXPECT_FALSE(json["checkpoints"][0].contains("bytes"));
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_EQ(Json::parse(output(checkpoint({"ls", "--json", folder_.file("empty")})))["checkpoints"].size(),
            0u);
}

TEST_F(CheckpointCommand, ShowsWhatACheckpointHolds) {
  const std::string text = output(checkpoint({"inspect", run_}));
  EXPECT_EQ(text,
            "checkpoint step 200 g2, saved 2023-11-14 22:13:20Z, 242 B in 1 shard\n"
            "meta: {\"epoch\":2}\n"
            "TENSOR  DTYPE  SHAPE   BYTES  SHARD\n"
            "half    F16    [1]         2      0\n"
            "steps   I64    []          8      0\n"
            "weight  F32    [2, 2]     16      0\n");
  EXPECT_TRUE(has(output(checkpoint({"inspect", first_path_ + "/"})), "checkpoint step 100 g1,"));
  const Json json = Json::parse(output(checkpoint({"inspect", "--json", second_path_})));
  EXPECT_EQ(json["step"], 200);
  EXPECT_EQ(json["meta"], (Json{{"epoch", 2}}));
  EXPECT_EQ(json["tensors"][2],
            (Json{{"name", "weight"}, {"dtype", "F32"}, {"shape", {2, 2}}, {"bytes", 16}}));
  EXPECT_EQ(json["shards"][0]["file"], "shard-0-of-1.safetensors");
}

TEST_F(CheckpointCommand, ShowsAPlainFile) {
  const std::string file = TANDEM_TEST_FILES "/oracles/small.safetensors";
  EXPECT_TRUE(has(output(checkpoint({"inspect", file})), "\"made by\": \"safetensors for Python\"\n"));
  const Json json = Json::parse(output(checkpoint({"inspect", "--json", file})));
  EXPECT_EQ(json["metadata"]["made by"], "safetensors for Python");
  EXPECT_EQ(json["tensors"].size(), 3u);
  EXPECT_TRUE(has(output(checkpoint({"verify", file})), "complete; this format has no checksums"));
}

TEST_F(CheckpointCommand, VerifiesEveryByte) {
  EXPECT_TRUE(
      has(output(checkpoint({"verify", run_})), "step-000000000200.g000002: whole, 242 B read in 0.0 s\n"));
  damage(first_path_ + "/shard-0-of-1.safetensors");
  const ProcessResult result = checkpoint({"verify", run_});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_TRUE(has(result.out, "step-000000000200.g000002: whole")) << result.out;
  EXPECT_TRUE(has(result.out,
                  "step-000000000100.g000001: checkpoint step 100 g1 is damaged: shard-0-of-1 chunk 0 "
                  "(steps and 2 more), crc32c "))
      << result.out;
  EXPECT_EQ(checkpoint({"verify", second_path_}).exit_code, 0);
  EXPECT_EQ(checkpoint({"verify", second_path_, first_path_}).exit_code, 65);
}

TEST_F(CheckpointCommand, ComparesTwo) {
  const ProcessResult result = checkpoint({"diff", first_path_, second_path_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out,
            "half: 1 of 1 values differ, by 2 at most, 2 on average\n"
            "steps: 1 of 1 values differ\n"
            "weight: 1 of 4 values differ, by 0.5 at most, 0.125 on average\n"
            "0 tensors are the same, 3 differ\n");
  EXPECT_TRUE(has(checkpoint({"diff", first_path_, run_, "--tolerance", "0.5"}).out,
                  "1 tensors are the same, 2 differ"));
  EXPECT_EQ(output(checkpoint({"diff", run_, second_path_})), "3 tensors are the same, 0 differ\n");
  const ProcessResult other = checkpoint({"diff", run_, TANDEM_TEST_FILES "/oracles/small.safetensors"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_TRUE(has(other.out, "bias: only in ")) << other.out;
  EXPECT_TRUE(has(other.out, "half: only in step 200 g2\n")) << other.out;
  EXPECT_TRUE(has(other.out, "weight: F32 [2, 2] and F32 [3, 4]\n")) << other.out;
}

TEST_F(CheckpointCommand, AveragesSeveral) {
  const std::string file = folder_.file("mean.safetensors");
  EXPECT_EQ(output(checkpoint({"average", "--last", "2", run_, "--output", file})),
            file + ": the mean of step 100 g1, step 200 g2\n");
  internal::PosixFileSystem files;
  const internal::SafetensorsFile mean(files, file);
  std::vector<float> weight(4);
  mean.read(*mean.find("weight"), std::as_writable_bytes(std::span(weight)));
  EXPECT_EQ(weight, (std::vector<float>{1, 2, 3.25, 4}));
  std::uint16_t half = 0;
  mean.read(*mean.find("half"), std::as_writable_bytes(std::span(&half, 1)));
  EXPECT_EQ(half, 0x4000);  // 2.0
  std::int64_t steps = 0;
  mean.read(*mean.find("steps"), std::as_writable_bytes(std::span(&steps, 1)));
  EXPECT_EQ(steps, 200);

  // As a checkpoint that a run can start from.
  output(checkpoint({"average", first_path_, second_path_, "--output", folder_.file("other")}));
  const Json json = Json::parse(output(checkpoint({"inspect", "--json", folder_.file("other")})));
  EXPECT_EQ(json["step"], 200);
  EXPECT_EQ(json["meta"]["epoch"], 2);
  EXPECT_EQ(json["meta"]["average_of"], (Json{"step 100 g1", "step 200 g2"}));
  EXPECT_EQ(output(checkpoint({"diff", file, folder_.file("other")})), "3 tensors are the same, 0 differ\n");
  // The mean of one is itself.
  output(checkpoint({"average", first_path_, "--output", file}));
  EXPECT_EQ(output(checkpoint({"diff", file, first_path_})), "3 tensors are the same, 0 differ\n");
}

TEST_F(CheckpointCommand, RefusesInOneLine) {
  refusal(checkpoint({}), 2);
  refusal(checkpoint({"ls"}), 2);
  refusal(checkpoint({"look", run_}), 2);
  EXPECT_TRUE(has(refusal(checkpoint({"ls", folder_.file("no")}), 2), "there is no folder"));
  EXPECT_TRUE(has(refusal(checkpoint({"inspect", folder_.file("no")}), 2), "there is no file or folder"));
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_TRUE(has(refusal(checkpoint({"inspect", folder_.file("empty")}), 65), "there is no checkpoint in"));
  EXPECT_TRUE(has(refusal(checkpoint({"verify", folder_.file("empty")}), 65), "there is no checkpoint in"));
  std::ofstream(folder_.file("model.pt")) << "PK\x03\x04 and so on";
  EXPECT_TRUE(has(refusal(checkpoint({"inspect", folder_.file("model.pt")}), 2), "zip archive"));
  EXPECT_TRUE(has(refusal(checkpoint({"average", run_, "--last", "3", "--output", "x"}), 2),
                  "there are 2 checkpoints"));
  EXPECT_TRUE(has(refusal(checkpoint({"average", first_path_, "--output", run_}), 2),
                  "has a checkpoint step 100 g1 already"));
  EXPECT_TRUE(has(refusal(checkpoint({"average", run_, TANDEM_TEST_FILES "/oracles/small.safetensors",
                                      "--output", folder_.file("x.safetensors")}),
                          2),
                  "have no mean: tensor half is only in the first"));
  damage(second_path_ + "/shard-0-of-1.safetensors");
  EXPECT_TRUE(has(refusal(checkpoint({"diff", first_path_, run_}), 65), "step 200 g2 is damaged"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x.safetensors"));
}

TEST_F(CheckpointCommand, ChecksTheSignature) {
  const std::string token = internal::make_token();
  internal::write_secret(folder_.file("key"), token);
  internal::write_secret(folder_.file("other"), internal::make_token());
  internal::CheckpointStore store(folder_.file("signed"), {.key = token});
  ASSERT_TRUE(store.save({1, 1}, tensors(first_), "{}").ok());
  output(checkpoint({"verify", folder_.file("signed")}));
  output(checkpoint({"verify", "--key-file", folder_.file("key"), folder_.file("signed")}));
  EXPECT_EQ(checkpoint({"verify", "--key_file", folder_.file("other"), folder_.file("signed")}).exit_code,
            65);
  EXPECT_EQ(checkpoint({"verify", "--key_file", folder_.file("key"), run_}).exit_code, 65);
}

}  // namespace
}  // namespace tandem
