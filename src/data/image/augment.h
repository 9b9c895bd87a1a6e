#pragma once

#include <functional>
#include <span>

#include "data/image/picture.h"

namespace tandem::internal {

// Random numbers in [0, 1), e.g. ExampleRandom::uniform. What is done to a picture depends on nothing else;
// each function says how many it takes.
using RandomNumbers = std::function<double()>;

// A region of that size, anywhere inside. Two numbers. Throws InvalidArgument if the picture is smaller.
Region random_crop(int picture_height, int picture_width, int height, int width, const RandomNumbers& random);

// In the middle; an odd pixel more is below and to the right. Throws InvalidArgument if the picture is
// smaller.
Region center_crop(int picture_height, int picture_width, int height, int width);

struct ResizedCropOptions {
  // How much of the picture's area.
  double min_area = 0.08;
  double max_area = 1;
  // Width over height; log-uniform between the two.
  double min_ratio = 3.0 / 4;
  double max_ratio = 4.0 / 3;
};

// A region of random area and form, to be resized: torchvision's RandomResizedCrop, and what ImageNet is
// trained with. After ten that do not fit, the largest in the middle of a form that is allowed. Four numbers,
// or up to forty. Throws InvalidArgument for options that allow nothing.
Region random_resized_crop(int picture_height, int picture_width, const RandomNumbers& random,
                           const ResizedCropOptions& options = {});

// The same part of the picture at another size (as decode_jpeg may give it), at least one pixel.
Region scale_region(const Region& region, int from_height, int from_width, int to_height, int to_width);

// Whether to flip, one time in two. One number.
bool random_flip(const RandomNumbers& random);

// The functions below change one picture in place, one plane per channel (CHW), as resize() writes it.
struct Planes {
  std::span<float> values;
  int channels = 0;

  std::span<float> plane(int channel) const {
    const std::size_t size = values.size() / static_cast<std::size_t>(channels);
    return values.subspan(static_cast<std::size_t>(channel) * size, size);
  }
};

struct ColorJitterOptions {
  // Each is a factor from the interval [max(0, 1 - value), 1 + value]. 0: nothing changes.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
};

// torchvision's ColorJitter without the hue, on values from 0 to 1, where they stay: brightness multiplies,
// contrast moves away from the mean grey of the picture, saturation from the grey of each pixel; in random
// order. Five numbers, always. A grey picture has no saturation. Throws InvalidArgument for a negative or
// infinite option, and for other than 1 or 3 channels.
void color_jitter(const Planes& picture, const ColorJitterOptions& options, const RandomNumbers& random);

// (value - mean) / deviation, of each channel. Throws InvalidArgument unless there is one of each for each
// channel, and every deviation more than 0.
void normalize(const Planes& picture, std::span<const float> mean, std::span<const float> deviation);

// TensorFlow's per_image_standardization: mean 0 and deviation 1 over all values. The deviation is taken to
// be at least 1 / sqrt(number of values), so that a picture of one colour becomes 0.
void standardize(std::span<float> values);

}  // namespace tandem::internal
