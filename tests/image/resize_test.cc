#include "data/image/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "image/pictures.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::waves;

// The definition, in double: each output pixel is the mean of the input weighted by a triangle around it, one
// pixel to each side, or one of the output's pixels where those are larger and it is asked for.
double by_definition(const Picture& picture, int channel, int y, int x, const ResizeOptions& options) {
  const bool antialias = options.bilinear == Bilinear::kTorchAntialias;
  const auto weights = [&](int in, int out, int at) {
    const double scale = static_cast<double>(in) / out;
    const double reach = antialias ? std::max(1.0, scale) : 1.0;
    double center = scale * (at + 0.5);
    if (!antialias) center = std::clamp(center, 0.5, in - 0.5);
    std::vector<double> of(in);
    double sum = 0;
    for (int i = 0; i < in; ++i) sum += of[i] = std::max(0.0, 1 - std::abs(i + 0.5 - center) / reach);
    for (double& weight : of) weight /= sum;
    return of;
  };
  const auto down = weights(picture.height, options.height, y);
  const auto across = weights(picture.width, options.width, options.flip ? options.width - 1 - x : x);
  double value = 0;
  for (int i = 0; i < picture.height; ++i) {
    for (int j = 0; j < picture.width; ++j) {
      value += down[i] * across[j] * picture.pixels[(i * picture.width + j) * picture.channels + channel];
    }
  }
  return value * options.normalization.scale[channel] + options.normalization.shift[channel];
}

void expect_definition(const Picture& picture, const ResizeOptions& options) {
  std::vector<float> got(static_cast<std::size_t>(picture.channels) * options.height * options.width);
  resize(view_of(picture), options, got);
  const std::vector<float> values(picture.pixels.begin(), picture.pixels.end());
  std::vector<float> from_floats(got.size());
  resize(PictureView<float>{values.data(), picture.height, picture.width, picture.channels,
                            std::ptrdiff_t{picture.width} * picture.channels},
         options, from_floats);
  EXPECT_EQ(from_floats, got);
  std::size_t i = 0;
  for (int c = 0; c < picture.channels; ++c) {
    for (int y = 0; y < options.height; ++y) {
      for (int x = 0; x < options.width; ++x, ++i) {
        ASSERT_NEAR(got[i], by_definition(picture, c, y, x, options), 2e-3)
            << picture.height << "x" << picture.width << "x" << picture.channels << " to " << options.height
            << "x" << options.width << " channel " << c << " row " << y << " column " << x;
      }
    }
  }
}

TEST(Resize, IsTheDefinitionForEverySizeAndConvention) {
  for (const Bilinear bilinear : {Bilinear::kTensorFlow, Bilinear::kTorch, Bilinear::kTorchAntialias}) {
    for (const int channels : {1, 3, 4}) {
      for (const auto& [height, width] : {std::pair{1, 1}, {5, 1}, {9, 14}, {31, 17}}) {
        for (const auto& [to_height, to_width] : {std::pair{1, 1}, {4, 7}, {9, 14}, {20, 33}}) {
          for (const bool flip : {false, true}) {
            expect_definition(waves(height, width, channels),
                              {.height = to_height, .width = to_width, .bilinear = bilinear, .flip = flip});
          }
        }
      }
    }
  }
}

const std::vector<float> kNumbers{1, 9, 4, 7, 0, 3, 8, 2, 5, 5, 1, 0, 2, 6, 7, 3, 2, 8, 3, 9,
                                  1, 4, 4, 0, 6, 0, 7, 2, 5, 8, 1, 9, 3, 4, 9, 6, 8, 0, 2, 5};

void expect_numbers(const ResizeOptions& options, const std::vector<float>& expected) {
  std::vector<float> got(expected.size());
  resize(PictureView<float>{kNumbers.data(), 5, 8, 1, 8}, options, got);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 5e-6) << i;
}

// What torch.nn.functional.interpolate answers.
TEST(Resize, GivesTheNumbersOfPyTorch) {
  expect_numbers({.height = 2, .width = 3, .bilinear = Bilinear::kTorch},
                 {5.666667f, 1.625f, 6.499999f, 1.708333f, 4.375f, 2.375002f});
  expect_numbers({.height = 2, .width = 3, .bilinear = Bilinear::kTorchAntialias},
                 {4.529905f, 3.28355f, 4.379187f, 4.399522f, 4.948052f, 3.905502f});
  expect_numbers({.height = 7, .width = 4, .bilinear = Bilinear::kTorch},
                 {5.0f,      5.5f,      1.5f,      5.0f,      5.0f,      2.642857f, 2.928571f,
                  5.0f,      5.0f,      2.071429f, 3.571428f, 4.142857f, 5.0f,      6.0f,
                  2.5f,      2.0f,      3.571428f, 4.928571f, 5.357143f, 4.142858f, 3.214286f,
                  5.785714f, 5.428571f, 4.357142f, 3.5f,      7.5f,      4.0f,      3.5f});
  expect_numbers({.height = 7, .width = 4, .bilinear = Bilinear::kTorchAntialias},
                 {4.857143f, 5.25f,     3.0f,      4.714286f, 4.612245f, 2.964286f, 3.5f,
                  4.959184f, 4.510204f, 2.5f,      3.767857f, 4.32653f,  4.714285f, 5.625f,
                  3.5f,      2.285714f, 3.897959f, 4.464285f, 4.75f,     4.530613f, 3.877551f,
                  5.339286f, 4.714286f, 4.387755f, 4.285714f, 7.125f,    4.0f,      3.0f});
}

TEST(Resize, GivesTheSameBitsOnEveryProcessor) {
  for (const Bilinear bilinear : {Bilinear::kTensorFlow, Bilinear::kTorchAntialias}) {
    for (const int channels : {1, 3, 4}) {
      const Picture picture = waves(97, 131, channels);
      const ResizeOptions options{.height = 45, .width = 150, .bilinear = bilinear};
      std::vector<float> here(static_cast<std::size_t>(channels) * 45 * 150);
      std::vector<float> without(here.size());
      resize(view_of(picture), options, here);
      resize_without_avx2(view_of(picture), options, without);
      EXPECT_EQ(here, without);
    }
  }
}

TEST(Resize, NormalizesOnTheWay) {
  const std::vector<float> mean{0.485f, 0.456f, 0.406f};
  const std::vector<float> deviation{0.229f, 0.224f, 0.225f};
  const Picture picture{1, 1, 3, {255, 0, 128}};
  for (const Bilinear bilinear : {Bilinear::kTensorFlow, Bilinear::kTorchAntialias}) {
    std::vector<float> got(12);
    resize(view_of(picture),
           {.height = 2, .width = 2, .bilinear = bilinear, .normalization = normalization(mean, deviation)},
           got);
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(got[i], (1 - 0.485) / 0.229, 1e-5);
      EXPECT_NEAR(got[4 + i], -0.456 / 0.224, 1e-5);
      EXPECT_NEAR(got[8 + i], (128.0 / 255 - 0.406) / 0.225, 1e-5);
    }
  }
  const std::vector<float> zero{0};
  EXPECT_EQ(message_of<InvalidArgument>([&] { normalization(zero, zero); }),
            "deviation 0 of channel 0: expected more than 0");
  EXPECT_THROW(normalization(mean, zero), InvalidArgument);
}

TEST(Resize, SeesNothingOutsideOfACrop) {
  const Picture picture = waves(20, 30, 3);
  const Region region{3, 5, 11, 9};
  Picture cut{11, 9, 3, {}};
  for (int y = 0; y < 11; ++y) {
    const auto begin = picture.pixels.begin() + ((3 + y) * 30 + 5) * 3;
    cut.pixels.insert(cut.pixels.end(), begin, begin + 27);
  }
  for (const Bilinear bilinear : {Bilinear::kTensorFlow, Bilinear::kTorchAntialias}) {
    const ResizeOptions options{.height = 7, .width = 8, .bilinear = bilinear};
    std::vector<float> of_view(3 * 56);
    std::vector<float> of_copy(3 * 56);
    resize(view_of(picture).crop(region), options, of_view);
    resize(view_of(cut), options, of_copy);
    EXPECT_EQ(of_view, of_copy);
  }
}

TEST(Resize, RefusesWhatItCannotDo) {
  const Picture picture = waves(2, 2, 3);
  std::vector<float> out(12);
  EXPECT_EQ(message_of<InvalidArgument>([&] { resize(view_of(picture), {.height = 2, .width = 0}, out); }),
            "resize from 2x2 to 0x2 pixels: expected at least 1x1");
  EXPECT_EQ(message_of<InvalidArgument>([&] { resize(view_of(picture), {.height = 2, .width = 3}, out); }),
            "resize into 12 values: expected 18 of 3x2x3");
  std::vector<float> eight(8);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              resize(PictureView<float>{out.data(), 2, 2, 2, 4}, {.height = 2, .width = 2}, eight);
            }),
            "resize of a picture with 2 channels: expected 1, 3 or 4");
}

}  // namespace
}  // namespace tandem::internal
