// Any bytes as a tf.train.Example: refused with one line that names the record, or an Example that is the
// same after it was written and read again.
#include "base/example.h"

#include <cstdint>
#include <string>

#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

constexpr RecordPlace kPlace{"fuzz", 7};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Example example;
  try {
    example = parse_example({reinterpret_cast<const char*>(data), size}, kPlace, {.max_values = 1000});
  } catch (const DataLoss& error) {
    const std::string line = error.what();
    require(line.starts_with("record 7 of \"fuzz\" is no tf.train.Example: "), "a refusal names the record");
    require(line.find('\n') == std::string::npos && line.size() < 200, "a refusal is one line");
    return -1;
  }
  const std::string bytes = encode_example(example);
  const Example again = parse_example(bytes, kPlace);
  require(again.features.size() == example.features.size(), "no feature is lost");
  // By its bytes: what is no number is not equal to itself.
  require(encode_example(again) == bytes, "it is the same after it was written");
  return 0;
}
