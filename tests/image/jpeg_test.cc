#include "data/image/jpeg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "image/pictures.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::encode_jpeg;
using testing_support::message_of;
using testing_support::waves;

int largest_difference(const Picture& a, const Picture& b) {
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  int largest = 0;
  for (std::size_t i = 0; i < std::min(a.pixels.size(), b.pixels.size()); ++i) {
    largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  }
  return largest;
}

// A header that says to be of this size, with the picture data of another.
std::string claim_size(std::string jpeg, int height, int width) {
  const std::size_t frame = std::min(jpeg.find("\xff\xc0"), jpeg.find("\xff\xc2"));
  jpeg[frame + 5] = static_cast<char>(height >> 8);
  jpeg[frame + 6] = static_cast<char>(height);
  jpeg[frame + 7] = static_cast<char>(width >> 8);
  jpeg[frame + 8] = static_cast<char>(width);
  return jpeg;
}

TEST(Jpeg, DecodesColourGreyAndProgressive) {
  for (const bool progressive : {false, true}) {
    for (const int channels : {1, 3}) {
      const Picture original = waves(61, 83, channels);
      const std::string bytes = encode_jpeg(original, {.quality = 98, .progressive = progressive});
      const Picture decoded = decode_jpeg(bytes, "a.jpg", {.channels = 0});
      EXPECT_EQ(decoded.height, 61);
      EXPECT_EQ(decoded.width, 83);
      EXPECT_EQ(decoded.channels, channels);
      EXPECT_LE(largest_difference(decoded, original), 8);
    }
  }
}

TEST(Jpeg, TellsTheSizeFromTheHeader) {
  const PictureSize size = jpeg_size(encode_jpeg(waves(61, 83, 3)), "a.jpg");
  EXPECT_EQ(size.height, 61);
  EXPECT_EQ(size.width, 83);
}

TEST(Jpeg, MakesTheChannelsThatAreAskedFor) {
  const Picture grey = decode_jpeg(encode_jpeg(waves(16, 24, 3)), "a.jpg", {.channels = 1});
  EXPECT_EQ(grey.channels, 1);
  EXPECT_EQ(grey.pixels.size(), 16u * 24);
  const Picture rgb = decode_jpeg(encode_jpeg(waves(16, 24, 1)), "a.jpg");
  EXPECT_EQ(rgb.channels, 3);
  for (std::size_t i = 0; i < rgb.pixels.size(); i += 3) {
    EXPECT_EQ(rgb.pixels[i], rgb.pixels[i + 1]);
    EXPECT_EQ(rgb.pixels[i], rgb.pixels[i + 2]);
  }
  EXPECT_EQ(message_of<InvalidArgument>([] { decode_jpeg("", "a.jpg", {.channels = 4}); }),
            "JPEG with 4 channels: expected 0, 1 or 3");
}

TEST(Jpeg, TurnsCmykIntoRgb) {
  // One colour: cyan 200, magenta 100, yellow 50, black 20 of 255.
  Picture ink{8, 8, 4, {}};
  for (int i = 0; i < 64; ++i) ink.pixels.insert(ink.pixels.end(), {200, 100, 50, 20});
  const auto first_pixel = [](const Picture& picture) {
    return std::vector<int>(picture.pixels.begin(), picture.pixels.begin() + 3);
  };
  const auto near = [](const std::vector<int>& got, const std::vector<int>& expected) {
    for (int c = 0; c < 3; ++c) EXPECT_NEAR(got[c], expected[c], 2);
  };
  const Picture plain = decode_jpeg(encode_jpeg(ink, {.quality = 100, .adobe = false}), "a.jpg");
  EXPECT_EQ(plain.channels, 3);
  near(first_pixel(plain), {55 * 235 / 255, 155 * 235 / 255, 205 * 235 / 255});
  // Adobe's are the other way round: how much light is left.
  near(first_pixel(decode_jpeg(encode_jpeg(ink, {.quality = 100}), "a.jpg")),
       {200 * 20 / 255, 100 * 20 / 255, 50 * 20 / 255});
  EXPECT_EQ(message_of<DataLoss>([&] { decode_jpeg(encode_jpeg(ink), "a.jpg", {.channels = 1}); }),
            "\"a.jpg\" is a CMYK JPEG, of which no grey picture is made: ask for 3 channels");
}

TEST(Jpeg, DecodesAtTheSmallestSizeThatIsLargeEnough) {
  const std::string bytes = encode_jpeg(waves(200, 301, 3));
  const auto size = [&](int height, int width) {
    const Picture picture = decode_jpeg(bytes, "a.jpg", {.min_height = height, .min_width = width});
    EXPECT_EQ(picture.pixels.size(), std::size_t{3} * picture.height * picture.width);
    return std::pair(picture.height, picture.width);
  };
  EXPECT_EQ(size(0, 0), std::pair(200, 301));
  EXPECT_EQ(size(25, 38), std::pair(25, 38));
  EXPECT_EQ(size(25, 39), std::pair(50, 76));
  EXPECT_EQ(size(26, 1), std::pair(50, 76));
  EXPECT_EQ(size(100, 151), std::pair(100, 151));
  EXPECT_EQ(size(101, 1), std::pair(200, 301));
  EXPECT_EQ(size(1000, 1000), std::pair(200, 301));
}

TEST(Jpeg, LooksTheSameWhenDecodedSmaller) {
  const Picture half =
      decode_jpeg(encode_jpeg(waves(400, 400, 3)), "a.jpg", {.min_height = 200, .min_width = 200});
  EXPECT_LE(largest_difference(half, waves(200, 200, 3)), 8);
}

TEST(Jpeg, RefusesWhatIsNoJpeg) {
  EXPECT_EQ(message_of<DataLoss>([] { decode_jpeg("this is a text", "a.jpg"); }),
            "\"a.jpg\" cannot be decoded as JPEG: Not a JPEG file: starts with 0x74 0x68");
  EXPECT_EQ(message_of<DataLoss>([] { decode_jpeg("", "a.jpg"); }),
            "\"a.jpg\" cannot be decoded as JPEG: Empty input file");
  EXPECT_THROW(jpeg_size("\xff", "a.jpg"), DataLoss);
}

TEST(Jpeg, NoticesWhereverTheFileIsCutOff) {
  for (const bool progressive : {false, true}) {
    const std::string whole = encode_jpeg(waves(40, 40, 3), {.progressive = progressive});
    // All but the two bytes that mark the end: those are not needed.
    for (std::size_t size = 2; size + 3 < whole.size(); ++size) {
      EXPECT_EQ(message_of<DataLoss>([&] { decode_jpeg(whole.substr(0, size), "a.jpg"); }),
                "\"a.jpg\" is a JPEG file that is cut off")
          << size << " of " << whole.size();
    }
  }
}

TEST(Jpeg, RefusesDamagedData) {
  std::string bytes = encode_jpeg(waves(64, 64, 3));
  const std::size_t scan = bytes.find("\xff\xda");
  bytes[scan + 40] = '\xff';
  bytes[scan + 41] = '\xd9';  // the end of the picture, too early
  EXPECT_EQ(message_of<DataLoss>([&] { decode_jpeg(bytes, "a.jpg"); }),
            "\"a.jpg\" cannot be decoded as JPEG: Corrupt JPEG data: premature end of data segment");
}

TEST(Jpeg, DecodesAPictureOfOnePixel) {
  const Picture one =
      decode_jpeg(encode_jpeg(waves(1, 1, 3)), "a.jpg", {.min_height = 224, .min_width = 224});
  EXPECT_EQ(one.height, 1);
  EXPECT_EQ(one.width, 1);
}

TEST(Jpeg, RefusesALargePictureBeforeItTakesMemory) {
  const std::string small = encode_jpeg(waves(16, 16, 3));
  EXPECT_EQ(message_of<DataLoss>([&] { decode_jpeg(claim_size(small, 20000, 20000), "a.jpg"); }),
            "\"a.jpg\" is a JPEG of 20000x20000 pixels, and at most 67108864 pixels are decoded");
  // At an eighth of its size it is small enough, and then is found to end early.
  EXPECT_THROW(
      {
        const auto bytes = claim_size(small, 20000, 20000);
        decode_jpeg(bytes, "a.jpg", {.min_height = 224, .min_width = 224});
      },
      DataLoss);
  const std::string progressive = encode_jpeg(waves(16, 16, 3), {.progressive = true});
  EXPECT_EQ(message_of<DataLoss>([&] {
              decode_jpeg(claim_size(progressive, 20000, 20000), "a.jpg",
                          {.min_height = 224, .min_width = 224});
            }),
            "\"a.jpg\" is a progressive JPEG of 20000x20000 pixels, and at most 67108864 pixels are decoded");
  EXPECT_NO_THROW(decode_jpeg(small, "a.jpg", {.max_pixels = 256}));
  EXPECT_THROW(decode_jpeg(small, "a.jpg", {.max_pixels = 255}), DataLoss);
}

TEST(Jpeg, RefusesAFileOfVeryManyScans) {
  std::string bytes = encode_jpeg(waves(16, 16, 1), {.progressive = true});
  // The last scan once more, and again.
  const std::size_t scan = bytes.rfind("\xff\xda");
  const std::string last = bytes.substr(scan, bytes.size() - 2 - scan);
  bytes.resize(bytes.size() - 2);
  for (int i = 0; i < 600; ++i) bytes += last;
  bytes += "\xff\xd9";
  EXPECT_THROW(decode_jpeg(bytes, "a.jpg"), DataLoss);
}

}  // namespace
}  // namespace tandem::internal
