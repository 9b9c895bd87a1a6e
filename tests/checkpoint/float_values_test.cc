#include "checkpoint/float_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace tandem::internal {
namespace {

double decode(const char* dtype, std::uint16_t bits) {
  double value = 0;
  to_doubles(dtype, std::as_bytes(std::span(&bits, 1)), {&value, 1});
  return value;
}

std::uint16_t encode(const char* dtype, double value) {
  std::uint16_t bits = 0;
  from_doubles(dtype, {&value, 1}, std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

TEST(FloatValues, KeepEvery16BitNumber) {
  for (const char* dtype : {"F16", "BF16"}) {
    double last = -1;
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
      const double value = decode(dtype, static_cast<std::uint16_t>(bits));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(decode(dtype, encode(dtype, value))));
        continue;
      }
      ASSERT_EQ(encode(dtype, value), bits) << dtype << " " << value;
      if (bits < 0x8000) {
        ASSERT_GT(value, last);
        last = value;
      }
    }
  }
}

// A bfloat16 is the upper half of a float.
TEST(FloatValues, ReadBfloat16AsTheUpperHalfOfAFloat) {
  for (unsigned bits = 0; bits < 0x10000; bits += 7) {
    const std::uint32_t whole = std::uint32_t{bits} << 16;
    float expected;
    std::memcpy(&expected, &whole, sizeof expected);
    if (std::isnan(expected)) continue;
    ASSERT_EQ(decode("BF16", static_cast<std::uint16_t>(bits)), expected);
  }
}

TEST(FloatValues, KnowTheStandardsExamples) {
  EXPECT_EQ(decode("F16", 0x3c00), 1.0);
  EXPECT_EQ(decode("F16", 0xc000), -2.0);
  EXPECT_EQ(decode("F16", 0x7bff), 65504.0);
  EXPECT_EQ(decode("F16", 0x0001), std::ldexp(1.0, -24));
  EXPECT_EQ(decode("F16", 0x0400), std::ldexp(1.0, -14));
  EXPECT_EQ(decode("F16", 0x7c00), std::numeric_limits<double>::infinity());
}

TEST(FloatValues, RoundToTheNearestTiesToEven) {
  for (const char* dtype : {"F16", "BF16"}) {
    const unsigned infinity = encode(dtype, std::numeric_limits<double>::infinity());
    for (unsigned bits = 0; bits + 1 < infinity; bits += 3) {
      const double low = decode(dtype, static_cast<std::uint16_t>(bits));
      const double high = decode(dtype, static_cast<std::uint16_t>(bits + 1));
      const double middle = low + (high - low) / 2;
      ASSERT_EQ(encode(dtype, middle), bits % 2 == 0 ? bits : bits + 1) << dtype << " " << middle;
      ASSERT_EQ(encode(dtype, std::nextafter(middle, 0.0)), bits);
      ASSERT_EQ(encode(dtype, std::nextafter(middle, high)), bits + 1);
      ASSERT_EQ(encode(dtype, -middle), (bits % 2 == 0 ? bits : bits + 1) | 0x8000u);
    }
    EXPECT_EQ(encode(dtype, 1e300), infinity);
    EXPECT_EQ(encode(dtype, std::numeric_limits<double>::denorm_min()), 0);
    EXPECT_EQ(encode(dtype, -0.0), 0x8000);
  }
  EXPECT_EQ(encode("F16", 65519.9), 0x7bff);
  EXPECT_EQ(encode("F16", 65520.0), 0x7c00);
}

TEST(FloatValues, ReadAndWriteTheOthersAsTheyAre) {
  const std::vector<float> floats{1.5f, -0.1f, 3e38f};
  std::vector<double> values(3);
  to_doubles("F32", std::as_bytes(std::span(floats)), values);
  EXPECT_EQ(values, (std::vector<double>{1.5, -0.1f, 3e38f}));
  std::vector<float> again(3);
  from_doubles("F32", values, std::as_writable_bytes(std::span(again)));
  EXPECT_EQ(again, floats);
  std::vector<double> doubles(3);
  to_doubles("F64", std::as_bytes(std::span(values)), doubles);
  EXPECT_EQ(doubles, values);
  EXPECT_TRUE(is_float("BF16"));
  EXPECT_FALSE(is_float("I32"));
  EXPECT_FALSE(is_float("F8_E4M3"));
}

}  // namespace
}  // namespace tandem::internal
