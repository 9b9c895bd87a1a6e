#include "checkpoint/float_values.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tandem::internal {
namespace {

// The 16-bit types differ in how many bits the exponent and the fraction have.
template <int kExponentBits, int kFractionBits>
struct Small {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kSmallestExponent = 1 - kBias;  // of a normal number
  static constexpr unsigned kInfinity = ((1u << kExponentBits) - 1) << kFractionBits;
  static constexpr unsigned kSign = 1u << (kExponentBits + kFractionBits);

  static double decode(std::uint16_t bits) {
    const unsigned magnitude = bits & (kSign - 1);
    const unsigned fraction = magnitude & ((1u << kFractionBits) - 1);
    const int exponent = static_cast<int>(magnitude >> kFractionBits);
    double value;
    if (magnitude >= kInfinity) {
      value =
          fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
      value = std::ldexp(fraction, kSmallestExponent - kFractionBits);
    } else {
      value = std::ldexp((1u << kFractionBits) | fraction, exponent - kBias - kFractionBits);
    }
    return bits & kSign ? -value : value;
  }

  static std::uint16_t encode(double value) {
    const unsigned sign = std::signbit(value) ? kSign : 0;
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | kInfinity | (1u << (kFractionBits - 1)));
    if (std::isinf(value)) return static_cast<std::uint16_t>(sign | kInfinity);
    int exponent = 0;
    std::frexp(value, &exponent);
    --exponent;  // of the highest bit
    const bool normal = value != 0 && exponent >= kSmallestExponent;
    if (!normal) exponent = kSmallestExponent;
    if (exponent > kBias) return static_cast<std::uint16_t>(sign | kInfinity);
    // In units of the last bit; rounding up may carry into the exponent, which is what it should do.
    const auto units =
        static_cast<unsigned>(std::nearbyint(std::ldexp(std::fabs(value), kFractionBits - exponent)));
    const unsigned below = normal ? static_cast<unsigned>(exponent + kBias - 1) << kFractionBits : 0;
    return static_cast<std::uint16_t>(sign | (below + units));
  }
};

using Float16 = Small<5, 10>;
using Bfloat16 = Small<8, 7>;

template <typename Stored, typename Decode>
void decode_all(Bytes bytes, std::span<double> values, Decode decode) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = decode(stored);
  }
}

template <typename Stored, typename Encode>
void encode_all(std::span<const double> values, std::span<std::byte> bytes, Encode encode) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Stored stored = encode(values[i]);
    std::memcpy(bytes.data() + i * sizeof stored, &stored, sizeof stored);
  }
}

}  // namespace

bool is_float(std::string_view dtype) {
  return dtype == "F16" || dtype == "BF16" || dtype == "F32" || dtype == "F64";
}

void to_doubles(std::string_view dtype, Bytes bytes, std::span<double> values) {
  if (dtype == "F16") return decode_all<std::uint16_t>(bytes, values, Float16::decode);
  if (dtype == "BF16") return decode_all<std::uint16_t>(bytes, values, Bfloat16::decode);
  if (dtype == "F32")
    return decode_all<float>(bytes, values, [](float value) { return static_cast<double>(value); });
  decode_all<double>(bytes, values, [](double value) { return value; });
}

void from_doubles(std::string_view dtype, std::span<const double> values, std::span<std::byte> bytes) {
  if (dtype == "F16") return encode_all<std::uint16_t>(values, bytes, Float16::encode);
  if (dtype == "BF16") return encode_all<std::uint16_t>(values, bytes, Bfloat16::encode);
  if (dtype == "F32")
    return encode_all<float>(values, bytes, [](double value) { return static_cast<float>(value); });
  encode_all<double>(values, bytes, [](double value) { return value; });
}

}  // namespace tandem::internal
