// Any bytes as a record file: what is read of it, written again, is the beginning of the file; the rest is
// torn or damaged, and the error says so in one line. It makes no difference in what pieces the bytes come.
//
// The first byte says whether the checksums are put right first (odd), so that changed lengths get past them.
#include "base/record_file.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

constexpr std::uint64_t kMost = 1 << 20;

void put_u32(std::string& bytes, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

void mend(std::string& bytes) {
  for (std::size_t at = 0; at + 12 <= bytes.size();) {
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 8; ++i)
      length |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
    put_u32(bytes, at + 8, masked_crc32c(bytes.data() + at, 8));
    at += 12;
    if (length > bytes.size() - at || bytes.size() - at - length < 4) return;
    put_u32(bytes, at + length, masked_crc32c(bytes.data() + at, length));
    at += length + 4;
  }
}

struct Outcome {
  std::vector<std::string> records;
  std::uint64_t offset = 0;
  enum { kEnd, kTorn, kDamaged } end = kEnd;
  std::string message;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// `step`: how many bytes more there are after each time that the file seemed to end.
Outcome read(const std::string& bytes, std::size_t step) {
  std::size_t visible = std::min(step, bytes.size());
  std::size_t done = 0;
  RecordReader reader("fuzz",
                      [&](char* data, std::size_t wanted) {
                        const std::size_t got = std::min(wanted, visible - done);
                        std::copy_n(bytes.data() + done, got, data);
                        done += got;
                        return got;
                      },
                      {.max_record_bytes = kMost});
  Outcome outcome;
  for (;;) {
    try {
      outcome.end = Outcome::kEnd;
      outcome.message.clear();
      while (auto record = reader.next()) outcome.records.push_back(std::move(*record));
    } catch (const TornRecord& error) {
      outcome.end = Outcome::kTorn;
      outcome.message = error.what();
    } catch (const DataLoss& error) {
      outcome.end = Outcome::kDamaged;
      outcome.message = error.what();
      break;
    }
    if (visible == bytes.size()) break;
    visible = std::min(visible + step, bytes.size());
  }
  outcome.offset = reader.offset();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return -1;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) mend(bytes);
  const Outcome outcome = read(bytes, bytes.size());
  require(outcome.offset <= bytes.size(), "nothing is read beyond the end");
  require(outcome.end != Outcome::kEnd || outcome.offset == bytes.size(), "a whole file is read to its end");
  require(outcome.message.find('\n') == std::string::npos, "what is wrong is said in one line");
  require(outcome.message.empty() || outcome.message.find("\"fuzz\"") != std::string::npos,
          "it names the file");

  std::string again;
  for (const auto& record : outcome.records) append_record(again, record);
  require(again == bytes.substr(0, outcome.offset), "what was read is what was written");
  require(read(bytes, 1 + bytes.size() / 16) == outcome, "piece by piece it reads the same");
  return outcome.end == Outcome::kEnd ? 0 : -1;
}
