#include "data/image/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/image/jpeg.h"
#include "data/image/png.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// Larger pictures would not fit anything either.
constexpr int kLargestSide = 1 << 14;

bool changes_colors(const ColorJitterOptions& jitter) {
  return jitter.brightness != 0 || jitter.contrast != 0 || jitter.saturation != 0;
}

Region whole(int height, int width) {
  return {0, 0, height, width};
}

Region choose_region(int height, int width, const PrepareOptions& options, const RandomNumbers& random) {
  if (options.min_crop_area >= 1) return whole(height, width);
  return random_resized_crop(height, width, random, {.min_area = options.min_crop_area});
}

// How high (or wide) the whole picture must come out for the region to have `wanted` pixels.
int needed(int side, int side_of_region, int wanted) {
  return static_cast<int>((std::int64_t{wanted} * side + side_of_region - 1) / side_of_region);
}

// The least reduction of a JPEG by which it has at most `max_pixels`; 8, the last one, if none does.
int reduction_within(PictureSize size, std::int64_t max_pixels) {
  int by = 1;
  while (by < 8 && (std::int64_t{size.height} / by) * (size.width / by) > max_pixels) by *= 2;
  return by;
}

// A picture, and the part of it that counts.
struct Decoded {
  Picture picture;
  Region region;
};

Decoded decode_reduced_jpeg(std::string_view bytes, const std::string& name, const PrepareOptions& options,
                            const RandomNumbers& random) {
  const PictureSize size = jpeg_size(bytes, name);
  const Region region = choose_region(size.height, size.width, options, random);
  const int by = reduction_within(size, options.max_pixels);
  Picture picture = decode_jpeg(
      bytes, name,
      {.channels = options.channels,
       .min_height = std::min(needed(size.height, region.height, options.height), (size.height - 1) / by + 1),
       .min_width = std::min(needed(size.width, region.width, options.width), (size.width - 1) / by + 1),
       .max_pixels = options.max_pixels});
  const Region there = scale_region(region, size.height, size.width, picture.height, picture.width);
  return {std::move(picture), there};
}

Decoded decode(std::string_view bytes, const std::string& name, const PrepareOptions& options,
               const RandomNumbers& random) {
  if (bytes.starts_with("\xff\xd8")) return decode_reduced_jpeg(bytes, name, options, random);
  if (bytes.starts_with("\x89PNG")) {
    Picture picture =
        decode_png(bytes, name, {.channels = options.channels, .max_pixels = options.max_pixels});
    const Region region = choose_region(picture.height, picture.width, options, random);
    return {std::move(picture), region};
  }
  throw DataLoss(fmt::format("\"{}\" is no picture: it begins neither as a JPEG nor as a PNG file{}", name,
                             bytes.empty() ? ", it is empty" : ""));
}

}  // namespace

void check(const PrepareOptions& options) {
  if (options.height < 1 || options.width < 1 || options.height > kLargestSide ||
      options.width > kLargestSide) {
    throw InvalidArgument(fmt::format("pictures of {}x{} pixels: expected 1x1 to {}x{}", options.width,
                                      options.height, kLargestSide, kLargestSide));
  }
  if (options.channels != 1 && options.channels != 3) {
    throw InvalidArgument(fmt::format("pictures with {} channels: expected 1 or 3", options.channels));
  }
  if (!(options.min_crop_area > 0 && options.min_crop_area <= 1)) {
    throw InvalidArgument(fmt::format("a crop of at least {} of a picture: expected more than 0, 1 at most",
                                      options.min_crop_area));
  }
  for (int c = 0; c < options.channels; ++c) {
    if (!(options.deviation[c] > 0) || !std::isfinite(options.mean[c])) {
      throw InvalidArgument(
          fmt::format("mean {} and deviation {} of channel {}: expected numbers, the "
                      "deviation more than 0",
                      options.mean[c], options.deviation[c], c));
    }
  }
  for (const double amount :
       {options.jitter.brightness, options.jitter.contrast, options.jitter.saturation}) {
    if (!(amount >= 0) || !std::isfinite(amount)) {
      throw InvalidArgument(fmt::format("colours changed by {}: expected 0 or more", amount));
    }
  }
}

void prepare_picture(std::string_view bytes, const std::string& name, const PrepareOptions& options,
                     const RandomNumbers& random, std::span<float> out) {
  const auto [picture, region] = decode(bytes, name, options, random);
  const auto channels = static_cast<std::size_t>(options.channels);
  const std::span mean = std::span(options.mean).first(channels);
  const std::span deviation = std::span(options.deviation).first(channels);
  const bool jitter = changes_colors(options.jitter);
  ResizeOptions resizing{.height = options.height,
                         .width = options.width,
                         .bilinear = options.bilinear,
                         .flip = options.random_flip && random_flip(random)};
  // Colours are changed between 0 and 1, before the rest.
  if (jitter) {
    resizing.normalization.scale.fill(1.0f / 255);
  } else {
    resizing.normalization = normalization(mean, deviation);
  }
  resize(view_of(picture).crop(region), resizing, out);
  if (!jitter) return;
  const Planes planes{out, options.channels};
  color_jitter(planes, options.jitter, random);
  normalize(planes, mean, deviation);
}

}  // namespace tandem::internal
