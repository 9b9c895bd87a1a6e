// Any bytes as an idx file, gzipped or not: refused with one line that names it, or read with as many values
// as its sizes say, and always the same.
//
// The first byte says how many dimensions are expected.
#include "data/idx_file.h"

#include <cstdint>
#include <string>

#include "fuzz/one_file.h"
#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return -1;
  static const fuzz::OneFile file("fuzz-idx");
  file.write(data + 1, size - 1);
  const int dimensions = 1 + data[0] % 3;
  try {
    const IdxFile read = read_idx_file(file.folder(), file.name(), dimensions);
    std::int64_t values = 1;
    for (const std::int64_t length : read.sizes) {
      require(length >= 1, "a dimension has a length");
      values *= length;
    }
    require(std::ssize(read.sizes) == dimensions, "it has the dimensions asked for");
    require(std::ssize(read.values) == values, "it has all its values");
    require(read_idx_file(file.folder(), file.name(), dimensions).values == read.values,
            "it is the same again");
    return 0;
  } catch (const DataLoss& error) {
    const std::string line = error.what();
    require(line.find(file.name()) != std::string::npos, "a refusal names the file");
    require(line.find('\n') == std::string::npos && line.size() < 400, "a refusal is one line");
    return -1;
  }
}
