#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem::internal {

// A file in MNIST's idx format: big-endian numbers for what it holds and each dimension, then bytes.
struct IdxFile {
  std::filesystem::path path = {};
  std::vector<std::int64_t> sizes = {};  // each at least 1
  std::vector<std::uint8_t> values = {};
};

// Reads `name` or `name`.gz in `dir`, bytes with that many dimensions.
// Throws NotFound if there is neither, DataLoss (file, offset once unpacked, what was expected) if it is
// damaged.
IdxFile read_idx_file(const std::filesystem::path& dir, const std::string& name, int dimensions);

// Where the values begin.
constexpr std::int64_t idx_header_bytes(std::int64_t dimensions) {
  return 4 + 4 * dimensions;
}

}  // namespace tandem::internal
