#include "data/image/prepare.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <vector>

#include "image/pictures.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::encode_jpeg;
using testing_support::encode_png_picture;
using testing_support::encode_png_rows;
using testing_support::message_of;
using testing_support::waves;

constexpr int kSide = 16;

// 0.3, 0.4, ...: the same again for each picture.
RandomNumbers numbers() {
  return [next = 0.2]() mutable { return next = next + 0.1 < 1 ? next + 0.1 : 0.05; };
}

RandomNumbers none() {
  return []() -> double { throw std::logic_error("a random number was drawn"); };
}

std::vector<float> prepared(const std::string& bytes, PrepareOptions options,
                            const RandomNumbers& random = none()) {
  if (options.height == 0) options.height = options.width = kSide;
  check(options);
  std::vector<float> out(static_cast<std::size_t>(options.channels) * options.height * options.width);
  prepare_picture(bytes, "p", options, random, out);
  return out;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

std::vector<float> resized(const Picture& picture) {
  std::vector<float> out(static_cast<std::size_t>(picture.channels) * kSide * kSide);
  ResizeOptions options{.height = kSide, .width = kSide};
  options.normalization.scale.fill(1.0f / 255);
  resize(view_of(picture), options, out);
  return out;
}

TEST(PrepareTest, GivesValuesFromZeroToOneOfEveryKindOfFile) {
  const Picture picture = waves(40, 50, 3);
  const std::vector<float> expected = resized(picture);
  EXPECT_LT(largest_difference(prepared(encode_png_picture(picture), {}), expected), 1e-6);
  EXPECT_LT(largest_difference(prepared(encode_jpeg(picture), {}), expected), 0.03);
  EXPECT_LT(largest_difference(prepared(encode_jpeg(picture, {.progressive = true}), {}), expected), 0.03);
}

TEST(PrepareTest, NormalizesByMeanAndDeviation) {
  const std::string bytes = encode_png_picture(waves(20, 20, 3));
  PrepareOptions options;
  const std::vector<float> plain = prepared(bytes, options);
  options.mean = {0.5f, 0.25f, 0};
  options.deviation = {0.5f, 2, 1};
  std::vector<float> expected = plain;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t c = i / (kSide * kSide);
    expected[i] = (expected[i] - options.mean[c]) / options.deviation[c];
  }
  EXPECT_LT(largest_difference(prepared(bytes, options), expected), 1e-5);
  // Colours change in another pass, with the same result where they stay the same.
  options.jitter.brightness = 1e-9;
  EXPECT_LT(largest_difference(prepared(bytes, options, numbers()), expected), 1e-5);
}

TEST(PrepareTest, ReadsCmykAndSixteenBitGreyAndOnePixel) {
  Picture inks{kSide, kSide, 4, {}};
  for (int i = 0; i < kSide * kSide; ++i) inks.pixels.insert(inks.pixels.end(), {255, 255, 128, 255});
  const std::vector<float> cmyk = prepared(encode_jpeg(inks), {});
  EXPECT_NEAR(cmyk.front(), 1, 0.02);
  EXPECT_NEAR(cmyk.back(), 128 / 255.0, 0.02);

  std::string rows;
  for (int i = 0; i < 4; ++i) rows += std::string("\x80\xff", 2);
  const std::string grey = encode_png_rows(2, 2, {.color_type = PNG_COLOR_TYPE_GRAY, .bits = 16}, rows);
  for (const float value : prepared(grey, {})) EXPECT_FLOAT_EQ(value, 128 / 255.0f);
  for (const float value : prepared(grey, {.channels = 1})) EXPECT_FLOAT_EQ(value, 128 / 255.0f);

  const Picture one{1, 1, 3, {255, 0, 51}};
  for (const auto& bytes : {encode_png_picture(one), encode_jpeg(one, {.quality = 100})}) {
    const std::vector<float> pixel = prepared(bytes, {.min_crop_area = 0.1, .random_flip = true}, numbers());
    EXPECT_NEAR(pixel.front(), 1, 0.03);
    EXPECT_NEAR(pixel.back(), 0.2, 0.03);
  }
}

TEST(PrepareTest, AFlipIsARandomFlipOfTheSamePicture) {
  const std::string bytes = encode_png_picture(waves(kSide, kSide, 3));
  const std::vector<float> as_is = prepared(bytes, {.random_flip = true}, [] { return 0.9; });
  const std::vector<float> flipped = prepared(bytes, {.random_flip = true}, [] { return 0.1; });
  EXPECT_EQ(as_is, prepared(bytes, {}));
  for (int y = 0; y < 3 * kSide; ++y) {
    for (int x = 0; x < kSide; ++x) EXPECT_FLOAT_EQ(flipped[y * kSide + x], as_is[y * kSide + kSide - 1 - x]);
  }
}

TEST(PrepareTest, ACropIsTheSamePartHoweverTheJpegIsReduced) {
  // Decoded at an eighth, and in full for a crop of few pixels.
  const Picture picture = waves(800, 800, 3);
  PrepareOptions options{.min_crop_area = 0.05};
  const std::vector<float> jpeg = prepared(encode_jpeg(picture), options, numbers());
  const std::vector<float> png = prepared(encode_png_picture(picture), options, numbers());
  EXPECT_LT(largest_difference(jpeg, png), 0.05);
}

// Encoded row by row, so that the test itself takes no memory for it.
std::string huge_grey_jpeg(int side) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = info.image_width = static_cast<JDIMENSION>(side);
  info.input_components = 1;
  info.in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  info.dct_method = JDCT_IFAST;
  jpeg_start_compress(&info, TRUE);
  std::vector<JSAMPLE> row(static_cast<std::size_t>(side), 102);
  JSAMPROW pointer = row.data();
  while (info.next_scanline < info.image_height) jpeg_write_scanlines(&info, &pointer, 1);
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string result(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);
  return result;
}

std::int64_t most_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

TEST(PrepareTest, TakesBoundedMemoryForAHugePicture) {
  const std::string bytes = huge_grey_jpeg(20000);
  const std::int64_t before = most_memory();
  for (const float value : prepared(bytes, {})) ASSERT_NEAR(value, 0.4, 0.01);
  // Even where a crop of few pixels would like more of them.
  prepared(bytes, {.min_crop_area = 0.08, .max_pixels = 10'000'000}, numbers());
  EXPECT_LT(most_memory() - before, 100 << 20);

  // Of a progressive one all of it would have to be held.
  std::string progressive = encode_jpeg(waves(16, 16, 3), {.progressive = true});
  progressive.replace(progressive.find("\xff\xc2") + 5, 4, "\x4e\x20\x4e\x20");
  EXPECT_EQ(message_of<DataLoss>([&] { prepared(progressive, {}); }),
            "\"p\" is a progressive JPEG of 20000x20000 pixels, and at most 67108864 pixels are decoded");
  // The same size in a PNG file's header, with its checksum.
  std::string png = encode_png_picture(waves(2, 2, 3));
  png.replace(12, 21, std::string("IHDR\0\0\x4e\x20\0\0\x4e\x20\x08\x02\0\0\0\x6c\x12\xd1\x6e", 21));
  EXPECT_EQ(message_of<DataLoss>([&] { prepared(png, {}); }),
            "\"p\" is a PNG of 20000x20000 pixels, and at most 67108864 pixels are decoded");
  EXPECT_LT(most_memory() - before, 100 << 20);
}

TEST(PrepareTest, RefusesWhatIsNoPictureByName) {
  const std::string jpeg = encode_jpeg(waves(64, 64, 3));
  EXPECT_EQ(message_of<DataLoss>([&] { prepared(jpeg.substr(0, jpeg.size() / 2), {}); }),
            "\"p\" is a JPEG file that is cut off");
  EXPECT_EQ(message_of<DataLoss>([] { prepared("a text, and no picture", {}); }),
            "\"p\" is no picture: it begins neither as a JPEG nor as a PNG file");
  EXPECT_EQ(message_of<DataLoss>([] { prepared("", {}); }),
            "\"p\" is no picture: it begins neither as a JPEG nor as a PNG file, it is empty");
}

TEST(PrepareTest, RefusesOptionsThatCannotWork) {
  const std::string bytes = encode_png_picture(waves(8, 8, 3));
  EXPECT_THROW(prepared(bytes, {.height = -1, .width = 8}), InvalidArgument);
  EXPECT_THROW(prepared(bytes, {.height = 8, .width = 100'000}), InvalidArgument);
  EXPECT_THROW(prepared(bytes, {.channels = 2}), InvalidArgument);
  EXPECT_THROW(prepared(bytes, {.deviation = {1, 0, 1, 1}}), InvalidArgument);
  EXPECT_THROW(prepared(bytes, {.min_crop_area = 0}), InvalidArgument);
  EXPECT_THROW(prepared(bytes, {.jitter = {.contrast = -1}}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::internal
