#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "tandem/dataset.h"

namespace tandem::data {

// Whose bilinear resize; they differ by up to a pixel's worth at edges, and models notice.
enum class ResizeMethod {
  kTensorFlow,      // tf.image.resize: between the four nearest pixels, also when it shrinks
  kTorch,           // torch interpolate(antialias=false): the same values
  kTorchAntialias,  // torchvision's default and Pillow's: when it shrinks, every pixel counts
};

// How a picture becomes a tensor. What is random is drawn from the example's own numbers.
struct ImageOptions {
  int height = 224;
  int width = 224;
  int channels = 3;  // 1 grey, 3 RGB
  ResizeMethod resize = ResizeMethod::kTensorFlow;

  // (value / 255 - mean) / deviation, one of each for each channel. Empty: value / 255, from 0 to 1.
  std::vector<float> mean = {};
  std::vector<float> deviation = {};

  // For training. A random region of at least this part of the picture's area and of a form between 3:4 and
  // 4:3 is resized, as torchvision's RandomResizedCrop does (there 0.08). 1: the whole picture.
  double min_crop_area = 1;
  // Left to right, one time in two.
  bool random_flip = false;
  // Each a factor from [max(0, 1 - value), 1 + value], as torchvision's ColorJitter; 0: nothing changes.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;

  // Memory is taken for at most so many pixels. A larger JPEG is decoded at down to an eighth of its size,
  // which serves 20,000 x 20,000; what still is larger, and a larger PNG or progressive JPEG, is refused.
  std::int64_t max_pixels = std::int64_t{1} << 26;
};

// What ImageNet's models are trained with, torchvision's among them.
ImageOptions image_net_options();

// A JPEG (grey, RGB, CMYK; baseline or progressive) or PNG (1 to 16 bits, palette, transparency dropped) as
// float32 [channels, height, width]. `name` is what messages call it. Any thread may call it; it works on the
// calling thread alone.
//
// Throws DataLoss for bytes that are no picture, a damaged or a too large one; InvalidArgument for options
// that cannot work.
at::Tensor decode_image(std::string_view bytes, const std::string& name, const ImageOptions& options,
                        ExampleRandom& random);

}  // namespace tandem::data
