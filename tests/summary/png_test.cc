#include "summary/png.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <set>
#include <stdexcept>
#include <vector>

#include "base/random.h"

namespace tandem::internal {
namespace {

using Pixels = std::vector<std::uint8_t>;

std::uint32_t u32_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = (value << 8) | static_cast<std::uint8_t>(bytes.at(at + i));
  return value;
}

struct Decoded {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  int colour_type = -1;
  Pixels pixels;
  std::set<int> filters;
};

// Reads what encode_png may write, by the letter of the specification; throws at anything else.
Decoded decode(const std::string& png) {
  const auto expect = [](bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
  };
  expect(png.substr(0, 8) == "\x89PNG\r\n\x1a\n", "signature");
  Decoded out;
  std::string packed;
  std::string last;
  for (std::size_t at = 8; at < png.size();) {
    const std::size_t length = u32_at(png, at);
    const std::string type = png.substr(at + 4, 4);
    const std::string data = png.substr(at + 8, length);
    const std::string covered = type + data;
    expect(u32_at(png, at + 8 + length) ==
               crc32(0, reinterpret_cast<const Bytef*>(covered.data()), static_cast<uInt>(covered.size())),
           "checksum");
    if (type == "IHDR") {
      out.width = u32_at(data, 0);
      out.height = u32_at(data, 4);
      expect(data.size() == 13 && data[8] == 8 && data.substr(10) == std::string(3, '\0'), "header");
      out.colour_type = data[9];
    } else if (type == "IDAT") {
      packed += data;
    }
    last = type;
    at += 12 + length;
  }
  expect(last == "IEND", "end");
  const std::size_t channels = out.colour_type == 0   ? 1
                               : out.colour_type == 4 ? 2
                               : out.colour_type == 2 ? 3
                                                      : 4;
  const std::size_t row_bytes = out.width * channels;
  std::string rows((row_bytes + 1) * out.height, '\0');
  uLongf size = rows.size();
  expect(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                    reinterpret_cast<const Bytef*>(packed.data()), packed.size()) == Z_OK &&
             size == rows.size(),
         "data");
  out.pixels.resize(row_bytes * out.height);
  for (std::size_t y = 0; y < out.height; ++y) {
    const int filter = rows[y * (row_bytes + 1)];
    out.filters.insert(filter);
    for (std::size_t x = 0; x < row_bytes; ++x) {
      const std::size_t i = y * row_bytes + x;
      const int left = x < channels ? 0 : out.pixels[i - channels];
      const int above = y == 0 ? 0 : out.pixels[i - row_bytes];
      expect(filter >= 0 && filter <= 2, "filter");
      const int predicted = filter == 0 ? 0 : filter == 1 ? left : above;
      out.pixels[i] = static_cast<std::uint8_t>(rows[y * (row_bytes + 1) + 1 + x] + predicted);
    }
  }
  return out;
}

class Png : public testing::TestWithParam<int> {};

TEST_P(Png, HasThePixelsThatWentIn) {
  const int channels = GetParam();
  const int width = 13;
  const int height = 9;
  Pixels pixels;
  for (int i = 0; i < width * height * channels; ++i) {
    pixels.push_back(static_cast<std::uint8_t>(mix(static_cast<std::uint64_t>(i))));
  }
  const Decoded decoded =
      decode(encode_png({.pixels = pixels.data(), .height = height, .width = width, .channels = channels}));
  EXPECT_EQ(decoded.width, 13u);
  EXPECT_EQ(decoded.height, 9u);
  EXPECT_EQ(decoded.colour_type, (std::vector<int>{0, 0, 4, 2, 6})[static_cast<std::size_t>(channels)]);
  EXPECT_EQ(decoded.pixels, pixels);
}

INSTANTIATE_TEST_SUITE_P(Channels, Png, testing::Values(1, 2, 3, 4));

TEST(PngSize, IsSmallForSmoothPictures) {
  const int size = 64;
  Pixels pixels;
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x)
      pixels.push_back(static_cast<std::uint8_t>(y < 32 ? 2 * x + y : 3 * y + (x * 37) % 256));
  }
  const std::string png = encode_png({.pixels = pixels.data(), .height = size, .width = size, .channels = 1});
  const Decoded decoded = decode(png);
  EXPECT_EQ(decoded.pixels, pixels);
  EXPECT_TRUE(decoded.filters.contains(1) || decoded.filters.contains(2));
  EXPECT_LT(png.size(), pixels.size() / 8);
}

TEST(PngSize, MayBeOnePixel) {
  const std::uint8_t pixel = 77;
  EXPECT_EQ(decode(encode_png({.pixels = &pixel, .height = 1, .width = 1, .channels = 1})).pixels,
            Pixels{77});
}

}  // namespace
}  // namespace tandem::internal
