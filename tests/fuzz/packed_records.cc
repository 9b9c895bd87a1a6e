// Any bytes as a packed TFRecord file: read to its end, or refused with one line that names it; and it makes
// no difference in what pieces the bytes come.
//
// The first byte says which compression, and whether the rest is packed first (odd), so that changes are
// inside.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/compression.h"
#include "base/record_file.h"
#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

struct Outcome {
  std::vector<std::string> records;
  std::string message;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// `piece`: the most bytes that the source gives at once.
Outcome read(const std::string& bytes, Compression compression, std::size_t piece) {
  const auto source = [&, done = std::size_t{0}](char* data, std::size_t wanted) mutable {
    const std::size_t got = std::min({wanted, piece, bytes.size() - done});
    std::copy_n(bytes.data() + done, got, data);
    done += got;
    return got;
  };
  RecordReader reader("fuzz", unpacked("fuzz", source, compression), {.max_record_bytes = 1 << 20});
  Outcome outcome;
  try {
    while (const auto record = reader.next_view()) outcome.records.emplace_back(*record);
  } catch (const DataLoss& error) {
    outcome.message = error.what();
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return -1;
  const Compression compression = data[0] / 2 % 2 == 1 ? Compression::kZlib : Compression::kGzip;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) {
    Packer packer(compression);
    std::string packed;
    packer.pack(bytes, packed);
    packer.finish(packed);
    bytes = std::move(packed);
  }
  const Outcome outcome = read(bytes, compression, bytes.size());
  require(outcome.message.find('\n') == std::string::npos, "what is wrong is said in one line");
  require(outcome.message.empty() || outcome.message.find("\"fuzz\"") != std::string::npos,
          "it names the file");
  require(read(bytes, compression, 1 + bytes.size() / 7) == outcome, "piece by piece it reads the same");
  return outcome.message.empty() ? 0 : -1;
}
