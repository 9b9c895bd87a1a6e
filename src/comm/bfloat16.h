#pragma once

#include <cstdint>
#include <cstring>

namespace tandem::internal {

// The upper half of a float32: what gradients can be rounded to on the wire. Sums are formed in float32 and
// rounded to the nearest, ties to even.
struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  explicit Bfloat16(float value) {
    std::uint32_t whole;
    std::memcpy(&whole, &value, sizeof whole);
    const bool is_nan = (whole & 0x7fffffff) > 0x7f800000;
    bits = static_cast<std::uint16_t>(is_nan ? (whole >> 16) | 0x40
                                             : (whole + 0x7fff + ((whole >> 16) & 1)) >> 16);
  }
  explicit operator float() const {
    const std::uint32_t whole = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &whole, sizeof value);
    return value;
  }

  friend Bfloat16 operator+(Bfloat16 a, Bfloat16 b) {
    return Bfloat16(static_cast<float>(a) + static_cast<float>(b));
  }
  friend Bfloat16 operator*(Bfloat16 a, Bfloat16 b) {
    return Bfloat16(static_cast<float>(a) * static_cast<float>(b));
  }
  friend bool operator<(Bfloat16 a, Bfloat16 b) { return static_cast<float>(a) < static_cast<float>(b); }
  friend bool operator>(Bfloat16 a, Bfloat16 b) { return b < a; }
};
static_assert(sizeof(Bfloat16) == 2);

}  // namespace tandem::internal
