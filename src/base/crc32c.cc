#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tandem::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "eight bytes at a time are read as they lie");

// The polynomial, with the coefficient of x^0 in the highest bit.
constexpr std::uint32_t kPolynomial = 0x82f63b78;

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ (value & 1 ? kPolynomial : 0);
}

std::uint64_t read_8(const unsigned char* bytes) {
  std::uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// kTables[k][b] is what byte b does to the checksum after k more zero bytes: eight look-ups serve eight
// bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

#if defined(__x86_64__)

constexpr std::uint32_t kOne = std::uint32_t{1} << 31;

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = times_x(b);
  }
  return product;
}

// x^(8 * bytes): a checksum times this is the checksum after that many zero bytes.
constexpr std::uint32_t power_of_bytes(std::size_t bytes) {
  std::uint32_t power = kOne;
  std::uint32_t square = kOne >> 8;
  for (; bytes != 0; bytes >>= 1) {
    if (bytes & 1) power = multiply(power, square);
    square = multiply(square, square);
  }
  return power;
}

// The instruction takes three cycles, and one can start each cycle: three lanes side by side, put together by
// shifting the earlier ones over the later.
template <std::size_t kLane>
__attribute__((target("sse4.2"))) std::uint32_t three_lanes(const unsigned char*& bytes, std::size_t& left,
                                                            std::uint32_t crc) {
  constexpr std::uint32_t kShift = power_of_bytes(kLane);
  while (left >= 3 * kLane) {
    std::uint64_t first = crc;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      first = _mm_crc32_u64(first, read_8(bytes + i));
      second = _mm_crc32_u64(second, read_8(bytes + kLane + i));
      third = _mm_crc32_u64(third, read_8(bytes + 2 * kLane + i));
    }
    crc = multiply(kShift, static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
    crc = multiply(kShift, crc) ^ static_cast<std::uint32_t>(third);
    bytes += 3 * kLane;
    left -= 3 * kLane;
  }
  return crc;
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const unsigned char* bytes, std::size_t left,
                                                               std::uint32_t crc) {
  crc = three_lanes<8192>(bytes, left, crc);
  crc = three_lanes<512>(bytes, left, crc);
  std::uint64_t wide = crc;
  for (; left >= 8; left -= 8, bytes += 8) wide = _mm_crc32_u64(wide, read_8(bytes));
  crc = static_cast<std::uint32_t>(wide);
  for (; left > 0; --left, ++bytes) crc = _mm_crc32_u8(crc, *bytes);
  return crc;
}

#endif

}  // namespace

std::uint32_t crc32c_by_table(const void* data, std::size_t left, std::uint32_t crc) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; left >= 8; left -= 8, bytes += 8) {
    const std::uint64_t next = read_8(bytes) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(next >> (8 * k)) & 0xff];
  }
  for (; left > 0; --left, ++bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes) & 0xff];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction(static_cast<const unsigned char*>(data), bytes, ~crc);
#endif
  return crc32c_by_table(data, bytes, crc);
}

}  // namespace tandem::internal
