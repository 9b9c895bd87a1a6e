#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "data/image/augment.h"
#include "data/image/picture.h"
#include "data/image/resize.h"

namespace tandem::internal {

struct PrepareOptions {
  int height = 0;
  int width = 0;
  int channels = 3;  // 1 or 3
  Bilinear bilinear = Bilinear::kTensorFlow;

  // Of each channel, (value / 255 - mean) / deviation. Four of each, of which the first `channels` count.
  std::array<float, 4> mean{0, 0, 0, 0};
  std::array<float, 4> deviation{1, 1, 1, 1};

  // A random_resized_crop() of at least this part of the area; 1: all of the picture.
  double min_crop_area = 1;
  bool random_flip = false;
  ColorJitterOptions jitter = {};

  // As JpegOptions has it. A JPEG that is larger is decoded at a part of its size, so far as it can be.
  std::int64_t max_pixels = std::int64_t{1} << 26;
};

// Throws InvalidArgument for options that cannot work, whatever the picture.
void check(const PrepareOptions& options);

// Decodes a JPEG or PNG file (its first bytes say which), crops, resizes, flips, changes colours and
// normalises, in this order and as the options say, into one plane per channel (CHW). A JPEG is decoded no
// larger than is needed. Takes random numbers only for what is random. Any thread may call it.
//
// Throws DataLoss, naming the file, for bytes that are no such picture, a damaged or a too large one.
void prepare_picture(std::string_view bytes, const std::string& name, const PrepareOptions& options,
                     const RandomNumbers& random, std::span<float> out);

}  // namespace tandem::internal
