#pragma once

#include <cstdint>
#include <string_view>

#include "base/random.h"

namespace tandem::internal {

// What stands for a text in a tensor: 64 bits of it, the same on every machine. 0 is the empty text, and no
// other.
constexpr std::int64_t fingerprint(std::string_view text) {
  if (text.empty()) return 0;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, its bits spread
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  const std::uint64_t spread = mix(hash);
  return static_cast<std::int64_t>(spread == 0 ? 1 : spread);
}

}  // namespace tandem::internal
