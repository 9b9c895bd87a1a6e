#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace tandem::internal {

// Puts up to `bytes` bytes at `data` and returns how many; 0 only where there are no more for now. Throws if
// it cannot read.
using ByteSource = std::function<std::size_t(char* data, std::size_t bytes)>;

// A file from its beginning. Throws NotFound with the system's reason, also while reading.
ByteSource file_source(const std::string& path);

}  // namespace tandem::internal
