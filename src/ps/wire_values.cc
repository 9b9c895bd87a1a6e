#include "ps/wire_values.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "comm/bfloat16.h"

namespace tandem::internal::ps {
namespace {

// Whether all exponents are below the one that infinities and NaNs have.
template <typename Bits, Bits kExponent>
bool exponents_are_below(std::span<const std::byte> values) {
  const auto* bits = reinterpret_cast<const Bits*>(values.data());
  const std::size_t count = values.size() / sizeof(Bits);
  Bits found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= static_cast<Bits>((bits[i] & kExponent) == kExponent);
  return found == 0;
}

}  // namespace

std::optional<WireType> wire_type_of(const std::string& dtype) {
  if (dtype == "F32") return WireType::kFloat32;
  if (dtype == "F64") return WireType::kFloat64;
  if (dtype == "BF16") return WireType::kBfloat16;
  return std::nullopt;
}

bool all_finite(WireType type, std::span<const std::byte> values) {
  if (type == WireType::kFloat32) return exponents_are_below<std::uint32_t, 0x7f800000>(values);
  if (type == WireType::kFloat64) return exponents_are_below<std::uint64_t, 0x7ff0000000000000>(values);
  return exponents_are_below<std::uint16_t, 0x7f80>(values);
}

void to_bfloat16(std::span<const std::byte> floats, std::span<std::byte> halves) {
  const auto* from = reinterpret_cast<const float*>(floats.data());
  auto* to = reinterpret_cast<Bfloat16*>(halves.data());
  for (std::size_t i = 0; i < halves.size() / sizeof(Bfloat16); ++i) to[i] = Bfloat16(from[i]);
}

void from_bfloat16(std::span<const std::byte> halves, std::span<std::byte> floats) {
  const auto* from = reinterpret_cast<const Bfloat16*>(halves.data());
  auto* to = reinterpret_cast<float*>(floats.data());
  for (std::size_t i = 0; i < halves.size() / sizeof(Bfloat16); ++i) to[i] = static_cast<float>(from[i]);
}

// Each block is still in the cache when its checksum is taken.
std::uint32_t copy_with_crc(std::span<const std::byte> from, std::byte* to) {
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  std::uint32_t crc = 0;
  for (std::size_t at = 0; at < from.size(); at += kBlock) {
    const std::size_t bytes = std::min(kBlock, from.size() - at);
    std::memcpy(to + at, from.data() + at, bytes);
    crc = crc32c(to + at, bytes, crc);
  }
  return crc;
}

}  // namespace tandem::internal::ps
