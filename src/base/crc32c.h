#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::internal {

// CRC-32C (Castagnoli), the checksum of record files, event files and checkpoints: finds every burst of up to
// 32 wrong bits, but not an attacker. `crc` continues an earlier one: crc32c(b, n, crc32c(a, m)) is that of a
// followed by b. As fast as memory can be read where the processor has an instruction for it, about 2 GB/s
// elsewhere.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc = 0);

// The same without the instruction; crc32c() uses it where there is none.
std::uint32_t crc32c_by_table(const void* data, std::size_t bytes, std::uint32_t crc = 0);

// As TFRecord files and event files store it: a checksum over bytes that hold checksums themselves is weak,
// so the stored one is turned and shifted.
constexpr std::uint32_t mask_crc32c(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}
inline std::uint32_t masked_crc32c(const void* data, std::size_t bytes) {
  return mask_crc32c(crc32c(data, bytes));
}

}  // namespace tandem::internal
