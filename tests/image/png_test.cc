#include "data/image/png.h"

#include <gtest/gtest.h>

#include <numeric>

#include "image/pictures.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::encode_png_picture;
using testing_support::encode_png_rows;
using testing_support::message_of;
using testing_support::waves;
using Bytes = std::vector<std::uint8_t>;

TEST(PngDecoder, GivesBackEveryPixel) {
  for (const bool interlaced : {false, true}) {
    for (const int channels : {1, 3, 4}) {
      const Picture original = waves(19, 23, channels);
      const Picture decoded = decode_png(encode_png_picture(original, interlaced), "a.png", {.channels = 0});
      EXPECT_EQ(decoded.height, 19);
      EXPECT_EQ(decoded.width, 23);
      EXPECT_EQ(decoded.channels, channels);
      EXPECT_EQ(decoded.pixels, original.pixels);
    }
  }
}

TEST(PngDecoder, MakesTheChannelsThatAreAskedFor) {
  const std::string grey = encode_png_picture({1, 2, 1, {10, 20}});
  EXPECT_EQ(decode_png(grey, "a.png").pixels, (Bytes{10, 10, 10, 20, 20, 20}));
  EXPECT_EQ(decode_png(grey, "a.png", {.channels = 4}).pixels, (Bytes{10, 10, 10, 255, 20, 20, 20, 255}));
  const std::string rgba = encode_png_picture({1, 2, 4, {100, 150, 200, 0, 9, 9, 9, 255}});
  EXPECT_EQ(decode_png(rgba, "a.png").pixels, (Bytes{100, 150, 200, 9, 9, 9}));
  // 0.299 * 100 + 0.587 * 150 + 0.114 * 200 = 140.75
  const Picture one = decode_png(rgba, "a.png", {.channels = 1});
  EXPECT_EQ(one.channels, 1);
  EXPECT_NEAR(one.pixels[0], 141, 1);
  EXPECT_EQ(one.pixels[1], 9);
  EXPECT_EQ(message_of<InvalidArgument>([] { decode_png("", "a.png", {.channels = 2}); }),
            "PNG with 2 channels: expected 0, 1, 3 or 4");
}

TEST(PngDecoder, KeepsTheUpperHalfOfSixteenBits) {
  const std::string grey = encode_png_rows(1, 2, {.color_type = PNG_COLOR_TYPE_GRAY, .bits = 16},
                                           std::string("\x12\xff\xab\x01", 4));
  EXPECT_EQ(decode_png(grey, "a.png", {.channels = 1}).pixels, (Bytes{0x12, 0xab}));
  const std::string rgb = encode_png_rows(1, 1, {.bits = 16}, std::string("\1\2\3\4\5\6", 6));
  EXPECT_EQ(decode_png(rgb, "a.png").pixels, (Bytes{1, 3, 5}));
}

TEST(PngDecoder, WidensFewerBits) {
  const std::string bits = encode_png_rows(1, 4, {.color_type = PNG_COLOR_TYPE_GRAY, .bits = 1}, "\x50");
  EXPECT_EQ(decode_png(bits, "a.png", {.channels = 1}).pixels, (Bytes{0, 255, 0, 255}));
  const std::string pairs = encode_png_rows(1, 4, {.color_type = PNG_COLOR_TYPE_GRAY, .bits = 2}, "\x1b");
  EXPECT_EQ(decode_png(pairs, "a.png", {.channels = 1}).pixels, (Bytes{0, 85, 170, 255}));
}

TEST(PngDecoder, LooksUpThePalette) {
  const testing_support::PngKind kind{.color_type = PNG_COLOR_TYPE_PALETTE,
                                      .bits = 8,
                                      .interlaced = false,
                                      .palette = {{1, 2, 3}, {40, 50, 60}},
                                      .transparent = {7}};
  const std::string bytes = encode_png_rows(1, 2, kind, std::string("\1\0", 2));
  EXPECT_EQ(decode_png(bytes, "a.png").pixels, (Bytes{40, 50, 60, 1, 2, 3}));
  EXPECT_EQ(decode_png(bytes, "a.png", {.channels = 0}).pixels, (Bytes{40, 50, 60, 255, 1, 2, 3, 7}));
}

TEST(PngDecoder, RefusesWhatIsNoPng) {
  const std::string message = "\"a.png\" is no PNG file: it does not begin as one";
  EXPECT_EQ(message_of<DataLoss>([] { decode_png("this is a text", "a.png"); }), message);
  EXPECT_EQ(message_of<DataLoss>([] { decode_png("", "a.png"); }), message);
}

TEST(PngDecoder, NoticesWhereverTheFileIsCutOff) {
  for (const bool interlaced : {false, true}) {
    const std::string whole = encode_png_picture(waves(20, 20, 3), interlaced);
    for (std::size_t size = 8; size < whole.size(); ++size) {
      EXPECT_EQ(message_of<DataLoss>([&] { decode_png(whole.substr(0, size), "a.png"); }),
                "\"a.png\" is a PNG file that is cut off")
          << size << " of " << whole.size();
    }
  }
}

TEST(PngDecoder, NoticesEveryWrongBitOfThePixels) {
  const std::string whole = encode_png_picture(waves(9, 9, 3));
  const std::size_t begin = whole.find("IDAT");
  const std::size_t end = whole.find("IEND") - 4;
  for (std::size_t bit = 8 * begin; bit < 8 * end; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(decode_png(bytes, "a.png"), DataLoss) << bit;
  }
}

TEST(PngDecoder, RefusesALargePictureBeforeItTakesMemory) {
  // The header of a picture of 20,000 x 20,000, with its checksum.
  std::string bytes = encode_png_picture(waves(2, 2, 3));
  const std::string header = std::string("IHDR\0\0\x4e\x20\0\0\x4e\x20\x08\x02\0\0\0", 17);
  bytes.replace(12, 17, header);
  const auto crc = [](const std::string& data) {
    std::uint32_t value = 0xffffffff;
    for (const char byte : data) {
      value ^= static_cast<std::uint8_t>(byte);
      for (int i = 0; i < 8; ++i) value = (value >> 1) ^ (value & 1 ? 0xedb88320 : 0);
    }
    return ~value;
  }(header);
  for (int i = 0; i < 4; ++i) bytes[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  EXPECT_EQ(message_of<DataLoss>([&] { decode_png(bytes, "a.png"); }),
            "\"a.png\" is a PNG of 20000x20000 pixels, and at most 67108864 pixels are decoded");
  const std::string small = encode_png_picture(waves(16, 16, 3));
  EXPECT_NO_THROW(decode_png(small, "a.png", {.max_pixels = 256}));
  EXPECT_THROW(decode_png(small, "a.png", {.max_pixels = 255}), DataLoss);
}

}  // namespace
}  // namespace tandem::internal
