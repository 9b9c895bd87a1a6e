// Any text as the COMMIT and the manifest of a checkpoint whose tensors are as they should be: it is refused
// as damaged, with one line, or the values that come are right.
//
// The input is COMMIT, an empty line, and the manifest; without a COMMIT the right one is put in its place.
#include "checkpoint/manifest.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_store.h"
#include "fuzz/require.h"
#include "support/memory_disk.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;
using testing_support::MemoryDisk;

const std::array<float, 6> kWeight{1, 2, 3, 4, 5, 6};
const std::array<std::int64_t, 1> kSteps{7};
const std::string kFolder = "/run/step-000000000007.g000003";

std::shared_ptr<MemoryDisk> make_disk() {
  auto disk = std::make_shared<MemoryDisk>();
  CheckpointStore store("/run", {.files = disk, .clock = [] { return std::int64_t{1'700'000'000}; }});
  const std::vector<TensorBytes> first{{"weight", "F32", {2, 3}, std::as_bytes(std::span(kWeight))}};
  const std::vector<TensorBytes> second{{"steps", "I64", {}, std::as_bytes(std::span(kSteps))}};
  const PendingSave pending = store.begin({7, 3});
  const auto result = store.commit(
      pending,
      {store.write_shard(pending.folder, {0, 2}, first), store.write_shard(pending.folder, {1, 2}, second)},
      R"({"epoch":1,"positions":[3,4]})");
  require(result.ok(), "the disk in memory takes a checkpoint");
  return disk;
}

void check_line(const Error& error) {
  const std::string line = error.what();
  require(error.code() == ErrorCode::kDataLoss, "a refusal is DataLoss");
  require(line.find_first_of("\n\r\t") == std::string::npos, "a refusal is one line");
  require(line.size() < 4096, "a refusal is short");
}

void check_alone(const std::string& text) {
  try {
    const Manifest manifest = parse_manifest(text);
    const std::string printed = make_manifest(manifest);
    require(make_manifest(parse_manifest(printed)) == printed, "a manifest is the same after printing");
  } catch (const DataLoss& error) {
    check_line(error);
  }
  try {
    const std::string printed = ShardSummary::from_bytes(text).to_bytes();
    require(ShardSummary::from_bytes(printed).to_bytes() == printed, "a summary is the same after a journey");
  } catch (const DataLoss& error) {
    check_line(error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<MemoryDisk> disk = make_disk();
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::size_t gap = input.find("\n\n");
  if (gap == std::string::npos) return -1;
  const std::string text = input.substr(gap + 2);
  check_alone(text);
  disk->contents(kFolder + "/manifest.json") = text;
  disk->contents(kFolder + "/COMMIT") = gap == 0 ? make_commit(text, "") : input.substr(0, gap + 1);
  try {
    const Checkpoint checkpoint(*disk, kFolder);
    std::array<float, 6> weight{};
    std::array<std::int64_t, 1> steps{};
    const std::vector<TensorRequest> requests{{"weight", std::as_writable_bytes(std::span(weight))},
                                              {"steps", std::as_writable_bytes(std::span(steps))}};
    checkpoint.read(requests);
    require(weight == kWeight && steps == kSteps, "values that come are right");
  } catch (const Error& error) {
    check_line(error);
    return -1;
  }
  return 0;
}
