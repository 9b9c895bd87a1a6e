#include "data/image/augment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

// What a colour looks like in grey (ITU-R 601, as torchvision has it).
constexpr std::array<float, 3> kGrey{0.2989f, 0.587f, 0.114f};

// 0 to n - 1.
int whole_number(const RandomNumbers& random, int n) {
  return std::min(static_cast<int>(random() * n), n - 1);
}

double between(const RandomNumbers& random, double low, double high) {
  return low + (high - low) * random();
}

void check_fits(int picture_height, int picture_width, int height, int width) {
  if (height >= 1 && width >= 1 && height <= picture_height && width <= picture_width) return;
  throw InvalidArgument(
      fmt::format("crop of {}x{} pixels from a picture of {}x{}: expected 1x1 up to all of it", width, height,
                  picture_width, picture_height));
}

float grey(const std::array<std::span<float>, 3>& rgb, std::size_t i) {
  return kGrey[0] * rgb[0][i] + kGrey[1] * rgb[1][i] + kGrey[2] * rgb[2][i];
}

void brighten(const Planes& picture, float factor) {
  for (float& value : picture.values) value = std::clamp(value * factor, 0.0f, 1.0f);
}

// Away from `center`, or towards it.
float apart(float value, float center, float factor) {
  return std::clamp(center + (value - center) * factor, 0.0f, 1.0f);
}

void change_contrast(const Planes& picture, float factor) {
  double sum = 0;
  if (picture.channels == 1) {
    for (const float value : picture.values) sum += value;
  } else {
    for (int c = 0; c < 3; ++c) {
      double of_channel = 0;
      for (const float value : picture.plane(c)) of_channel += value;
      sum += kGrey[c] * of_channel;
    }
  }
  const auto mean = static_cast<float>(sum * picture.channels / static_cast<double>(picture.values.size()));
  for (float& value : picture.values) value = apart(value, mean, factor);
}

void change_saturation(const Planes& picture, float factor) {
  if (picture.channels == 1) return;
  const std::array rgb{picture.plane(0), picture.plane(1), picture.plane(2)};
  for (std::size_t i = 0; i < rgb[0].size(); ++i) {
    const float center = grey(rgb, i);
    for (const auto& plane : rgb) plane[i] = apart(plane[i], center, factor);
  }
}

double factor(double amount, std::string_view what, const RandomNumbers& random) {
  if (!(amount >= 0) || !std::isfinite(amount)) {
    throw InvalidArgument(fmt::format("color jitter with {} {}: expected 0 or more", what, amount));
  }
  return between(random, std::max(0.0, 1 - amount), 1 + amount);
}

}  // namespace

Region random_crop(int picture_height, int picture_width, int height, int width,
                   const RandomNumbers& random) {
  check_fits(picture_height, picture_width, height, width);
  const int top = whole_number(random, picture_height - height + 1);
  const int left = whole_number(random, picture_width - width + 1);
  return {top, left, height, width};
}

Region center_crop(int picture_height, int picture_width, int height, int width) {
  check_fits(picture_height, picture_width, height, width);
  return {(picture_height - height) / 2, (picture_width - width) / 2, height, width};
}

Region random_resized_crop(int picture_height, int picture_width, const RandomNumbers& random,
                           const ResizedCropOptions& options) {
  if (picture_height < 1 || picture_width < 1) {
    throw InvalidArgument(fmt::format("crop from a picture of {}x{} pixels: expected at least 1x1",
                                      picture_width, picture_height));
  }
  if (!(options.min_area > 0 && options.min_area <= options.max_area && options.max_area <= 1 &&
        options.min_ratio > 0 && options.min_ratio <= options.max_ratio &&
        std::isfinite(options.max_ratio))) {
    throw InvalidArgument(
        fmt::format("random crop of {} to {} of the area, {} to {} times as wide as high: expected "
                    "0 < area <= 1 and 0 < ratio, the smaller first",
                    options.min_area, options.max_area, options.min_ratio, options.max_ratio));
  }
  const double area = static_cast<double>(picture_height) * picture_width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * between(random, options.min_area, options.max_area);
    const double ratio = std::exp(between(random, std::log(options.min_ratio), std::log(options.max_ratio)));
    // A very flat one overflows no int: it is compared first.
    const double width = std::round(std::sqrt(wanted * ratio));
    const double height = std::round(std::sqrt(wanted / ratio));
    if (width >= 1 && width <= picture_width && height >= 1 && height <= picture_height) {
      return random_crop(picture_height, picture_width, static_cast<int>(height), static_cast<int>(width),
                         random);
    }
  }
  int height = picture_height;
  int width = picture_width;
  const double ratio = static_cast<double>(width) / height;
  if (ratio < options.min_ratio)
    height = std::max(1, static_cast<int>(std::round(width / options.min_ratio)));
  if (ratio > options.max_ratio)
    width = std::max(1, static_cast<int>(std::round(height * options.max_ratio)));
  return center_crop(picture_height, picture_width, height, width);
}

Region scale_region(const Region& region, int from_height, int from_width, int to_height, int to_width) {
  const auto place = [](int at, int from, int to) {
    return static_cast<int>(std::lround(static_cast<double>(at) * to / from));
  };
  Region scaled;
  scaled.top = std::min(place(region.top, from_height, to_height), to_height - 1);
  scaled.left = std::min(place(region.left, from_width, to_width), to_width - 1);
  scaled.height = std::max(1, place(region.top + region.height, from_height, to_height) - scaled.top);
  scaled.width = std::max(1, place(region.left + region.width, from_width, to_width) - scaled.left);
  return scaled;
}

bool random_flip(const RandomNumbers& random) {
  return random() < 0.5;
}

void color_jitter(const Planes& picture, const ColorJitterOptions& options, const RandomNumbers& random) {
  if (picture.channels != 1 && picture.channels != 3) {
    throw InvalidArgument(
        fmt::format("color jitter of a picture with {} channels: expected 1 or 3", picture.channels));
  }
  struct Step {
    void (*change)(const Planes&, float);
    double factor;
  };
  std::array steps{Step{brighten, factor(options.brightness, "brightness", random)},
                   Step{change_contrast, factor(options.contrast, "contrast", random)},
                   Step{change_saturation, factor(options.saturation, "saturation", random)}};
  std::swap(steps[2], steps[whole_number(random, 3)]);
  std::swap(steps[1], steps[whole_number(random, 2)]);
  for (const Step& step : steps) {
    if (step.factor != 1) step.change(picture, static_cast<float>(step.factor));
  }
}

void normalize(const Planes& picture, std::span<const float> mean, std::span<const float> deviation) {
  if (std::ssize(mean) != picture.channels || std::ssize(deviation) != picture.channels) {
    throw InvalidArgument(fmt::format("{} means and {} deviations for a picture with {} channels",
                                      mean.size(), deviation.size(), picture.channels));
  }
  for (int c = 0; c < picture.channels; ++c) {
    if (!(deviation[c] > 0)) {
      throw InvalidArgument(fmt::format("deviation {} of channel {}: expected more than 0", deviation[c], c));
    }
    for (float& value : picture.plane(c)) value = (value - mean[c]) / deviation[c];
  }
}

void standardize(std::span<float> values) {
  if (values.empty()) return;
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const float value : values) sum += value;
  const double mean = sum / count;
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::max(std::sqrt(squares / count), 1 / std::sqrt(count));
  for (float& value : values) value = static_cast<float>((value - mean) / deviation);
}

}  // namespace tandem::internal
