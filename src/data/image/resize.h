#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "data/image/picture.h"

namespace tandem::internal {

// Whose bilinear resize. All have pixel centres at half numbers.
enum class Bilinear {
  kTensorFlow,      // tf.image.resize: between the four nearest pixels, also when it shrinks; to the bit
  kTorch,           // torch interpolate(align_corners=false, antialias=false): the same values
  kTorchAntialias,  // interpolate(antialias=true), torchvision's default, and Pillow's: when it shrinks,
                    // every pixel counts. Not rounded to whole numbers in between, as Pillow does
};

// What becomes of the values of each channel: value * scale + shift.
struct Normalization {
  std::array<float, 4> scale{1, 1, 1, 1};
  std::array<float, 4> shift{0, 0, 0, 0};
};

// For values from 0 to 255: (value / 255 - mean) / deviation, as torchvision's ToTensor and Normalize.
Normalization normalization(std::span<const float> mean, std::span<const float> deviation);

struct ResizeOptions {
  int height = 0;
  int width = 0;
  Bilinear bilinear = Bilinear::kTensorFlow;
  bool flip = false;  // left to right
  Normalization normalization = {};
};

// Resizes, flips and normalises in one pass, into one plane per channel (CHW). `out` has
// channels * height * width values. Throws InvalidArgument unless it has, for a picture or size without
// pixels, and for other than 1, 3 or 4 channels.
void resize(const PictureView<std::uint8_t>& picture, const ResizeOptions& options, std::span<float> out);
void resize(const PictureView<float>& picture, const ResizeOptions& options, std::span<float> out);

// The same without AVX2, to the bit; resize() uses it where the processor has none.
void resize_without_avx2(const PictureView<std::uint8_t>& picture, const ResizeOptions& options,
                         std::span<float> out);

}  // namespace tandem::internal
