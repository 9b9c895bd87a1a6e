#include "data/image/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

// For each place of an axis of the output, the two places of the input that it lies between.
struct Between {
  std::vector<int> lower;
  std::vector<int> upper;
  std::vector<float> part;  // of the upper one
};

// In float and in this order, as TensorFlow computes it.
Between between(int in, int out) {
  Between axis{std::vector<int>(out), std::vector<int>(out), std::vector<float>(out)};
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  for (int i = 0; i < out; ++i) {
    const float place = (static_cast<float>(i) + 0.5f) * scale - 0.5f;
    const float below = std::floor(place);
    axis.lower[i] = std::clamp(static_cast<int>(below), 0, in - 1);
    axis.upper[i] = std::clamp(static_cast<int>(std::ceil(place)), 0, in - 1);
    axis.part[i] = place - below;
  }
  return axis;
}

// For each place of an axis of the output, the run of places of the input that counts, and how much each.
struct Runs {
  std::vector<int> first;
  std::vector<int> count;
  std::vector<float> weights;  // `most` for each place
  int most = 0;
};

// A triangle as wide as two pixels of whichever side has the larger ones; its weights add up to 1.
Runs runs(int in, int out) {
  const double scale = static_cast<double>(in) / out;
  const double reach = std::max(scale, 1.0);
  Runs axis;
  axis.most = 2 * static_cast<int>(std::ceil(reach)) + 1;
  axis.first.resize(out);
  axis.count.resize(out);
  axis.weights.resize(static_cast<std::size_t>(out) * axis.most);
  for (int i = 0; i < out; ++i) {
    const double center = scale * (i + 0.5);
    const int first = std::max(static_cast<int>(center - reach + 0.5), 0);
    const int end = std::min(static_cast<int>(center + reach + 0.5), in);
    float* const weights = axis.weights.data() + static_cast<std::size_t>(i) * axis.most;
    double sum = 0;
    for (int j = first; j < end; ++j) sum += std::max(0.0, 1 - std::abs((j + 0.5 - center) / reach));
    for (int j = first; j < end; ++j) {
      weights[j - first] = static_cast<float>(std::max(0.0, 1 - std::abs((j + 0.5 - center) / reach)) / sum);
    }
    axis.first[i] = first;
    axis.count[i] = end - first;
  }
  return axis;
}

// The outputs from right to left.
template <typename Axis>
void mirror(Axis& axis);
template <>
void mirror(Between& axis) {
  std::reverse(axis.lower.begin(), axis.lower.end());
  std::reverse(axis.upper.begin(), axis.upper.end());
  std::reverse(axis.part.begin(), axis.part.end());
}
template <>
void mirror(Runs& axis) {
  std::reverse(axis.first.begin(), axis.first.end());
  std::reverse(axis.count.begin(), axis.count.end());
  for (auto left = axis.weights.begin(), right = axis.weights.end() - axis.most; left < right;
       left += axis.most, right -= axis.most) {
    std::swap_ranges(left, left + axis.most, right);
  }
}

// Everything from here on is compiled twice, see resize_by_avx2.
//
// Four values at once: a pixel, and of RGB one value of the next pixel too, for which rows of floats have
// room at their end.
using Four = float __attribute__((vector_size(16)));
constexpr std::size_t kRoom = 4;

[[gnu::always_inline]] inline Four load(const float* from) {
  Four values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

[[gnu::always_inline]] inline void store(float* to, Four values) {
  std::memcpy(to, &values, sizeof values);
}

std::vector<float> row_of_floats(int width, int channels) {
  return std::vector<float>(static_cast<std::size_t>(width) * channels + kRoom);
}

template <typename Value>
[[gnu::always_inline]] inline void to_floats(const Value* __restrict row, std::ptrdiff_t values,
                                             float* __restrict out) {
  for (std::ptrdiff_t i = 0; i < values; ++i) out[i] = static_cast<float>(row[i]);
}

// A row at the width of the output.
template <int kChannels>
[[gnu::always_inline]] inline void squeeze_row(const float* row, const Between& columns, int width,
                                               float* __restrict out) {
  // The loop need not look for them again after each value that it writes.
  const int* const lower = columns.lower.data();
  const int* const upper = columns.upper.data();
  const float* const part = columns.part.data();
  for (int x = 0; x < width; ++x) {
    const float* const left = row + std::ptrdiff_t{lower[x]} * kChannels;
    const float* const right = row + std::ptrdiff_t{upper[x]} * kChannels;
    if constexpr (kChannels == 1) {
      out[x] = *left + (*right - *left) * part[x];
    } else {
      const Four from = load(left);
      store(out + std::ptrdiff_t{x} * kChannels, from + (load(right) - from) * part[x]);
    }
  }
}

template <int kChannels>
[[gnu::always_inline]] inline void squeeze_row(const float* row, const Runs& columns, int width, float* out) {
  for (int x = 0; x < width; ++x) {
    const float* from = row + std::ptrdiff_t{columns.first[x]} * kChannels;
    const float* const weights = columns.weights.data() + static_cast<std::size_t>(x) * columns.most;
    if constexpr (kChannels == 1) {
      float sum = 0;
      for (int k = 0; k < columns.count[x]; ++k) sum += from[k] * weights[k];
      out[x] = sum;
    } else {
      Four sum{};
      for (int k = 0; k < columns.count[x]; ++k, from += kChannels) sum += load(from) * weights[k];
      store(out + std::ptrdiff_t{x} * kChannels, sum);
    }
  }
}

[[gnu::always_inline]] inline void blend_rows(const float* __restrict top, const float* __restrict bottom,
                                              float part, std::ptrdiff_t values, float* __restrict out) {
  for (std::ptrdiff_t i = 0; i < values; ++i) out[i] = top[i] + (bottom[i] - top[i]) * part;
}

// A finished row, into the planes.
template <int kChannels>
[[gnu::always_inline]] inline void part_channels(const float* __restrict row,
                                                 const Normalization& normalization, int width,
                                                 std::size_t plane, float* __restrict out) {
  for (int c = 0; c < kChannels; ++c) {
    const float scale = normalization.scale[c];
    const float shift = normalization.shift[c];
    float* __restrict const to = out + c * plane;
    for (int x = 0; x < width; ++x) to[x] = row[std::ptrdiff_t{x} * kChannels + c] * scale + shift;
  }
}

// A row of the picture as it is across.
struct Kept {
  int row = -1;
  std::vector<float> values;
};

template <int kChannels, typename Value>
[[gnu::always_inline]] inline void keep_row(const PictureView<Value>& picture, int row,
                                            const Between& columns, int width, std::vector<float>& wide,
                                            Kept& kept) {
  if (kept.row == row) return;
  to_floats(picture.pixels + row * picture.row_step, std::ptrdiff_t{picture.width} * kChannels, wide.data());
  squeeze_row<kChannels>(wide.data(), columns, width, kept.values.data());
  kept.row = row;
}

// Across first, then down, as TensorFlow does. Two rows of the picture are kept as they are across.
template <int kChannels, typename Value>
[[gnu::always_inline]] inline void resize_between(const PictureView<Value>& picture,
                                                  const ResizeOptions& options, float* out) {
  const int width = options.width;
  Between columns = between(picture.width, width);
  if (options.flip) mirror(columns);
  const Between rows = between(picture.height, options.height);
  const std::size_t plane = static_cast<std::size_t>(options.height) * width;

  Kept top{-1, row_of_floats(width, kChannels)};
  Kept bottom = top;
  std::vector<float> wide = row_of_floats(picture.width, kChannels);
  std::vector<float> blended = row_of_floats(width, kChannels);
  for (int y = 0; y < options.height; ++y, out += width) {
    if (bottom.row == rows.lower[y]) std::swap(top, bottom);
    keep_row<kChannels>(picture, rows.lower[y], columns, width, wide, top);
    keep_row<kChannels>(picture, rows.upper[y], columns, width, wide, bottom);
    blend_rows(top.values.data(), bottom.values.data(), rows.part[y], std::ptrdiff_t{width} * kChannels,
               blended.data());
    part_channels<kChannels>(blended.data(), options.normalization, width, plane, out);
  }
}

template <typename Value>
[[gnu::always_inline]] inline void add_row(const Value* __restrict row, float weight, std::ptrdiff_t values,
                                           float* __restrict sum) {
  for (std::ptrdiff_t i = 0; i < values; ++i) sum[i] += static_cast<float>(row[i]) * weight;
}

// Down first: what is left to do across is then less.
template <int kChannels, typename Value>
[[gnu::always_inline]] inline void resize_runs(const PictureView<Value>& picture,
                                               const ResizeOptions& options, float* out) {
  const int width = options.width;
  Runs columns = runs(picture.width, width);
  if (options.flip) mirror(columns);
  const Runs rows = runs(picture.height, options.height);
  const std::size_t plane = static_cast<std::size_t>(options.height) * width;
  std::vector<float> sum = row_of_floats(picture.width, kChannels);
  std::vector<float> squeezed = row_of_floats(width, kChannels);
  for (int y = 0; y < options.height; ++y, out += width) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int k = 0; k < rows.count[y]; ++k) {
      add_row(picture.pixels + (rows.first[y] + k) * picture.row_step,
              rows.weights[static_cast<std::size_t>(y) * rows.most + k],
              std::ptrdiff_t{picture.width} * kChannels, sum.data());
    }
    squeeze_row<kChannels>(sum.data(), columns, width, squeezed.data());
    part_channels<kChannels>(squeezed.data(), options.normalization, width, plane, out);
  }
}

template <int kChannels, typename Value>
[[gnu::always_inline]] inline void resize_channels(const PictureView<Value>& picture,
                                                   const ResizeOptions& options, float* out) {
  if (options.bilinear == Bilinear::kTorchAntialias) {
    resize_runs<kChannels>(picture, options, out);
  } else {
    resize_between<kChannels>(picture, options, out);
  }
}

template <typename Value>
[[gnu::always_inline]] inline void resize_loops(const PictureView<Value>& picture,
                                                const ResizeOptions& options, float* out) {
  switch (picture.channels) {
    case 1:
      return resize_channels<1>(picture, options, out);
    case 3:
      return resize_channels<3>(picture, options, out);
    default:
      return resize_channels<4>(picture, options, out);
  }
}

template <typename Value>
void resize_anywhere(const PictureView<Value>& picture, const ResizeOptions& options, float* out) {
  resize_loops(picture, options, out);
}

#if defined(__x86_64__)
// The same loops with wider registers, and so the same bits: AVX2 alone does not join a product and a sum
// into one rounding.
template <typename Value>
__attribute__((target("avx2"))) void resize_by_avx2(const PictureView<Value>& picture,
                                                    const ResizeOptions& options, float* out) {
  resize_loops(picture, options, out);
}
#endif

template <typename Value>
void check(const PictureView<Value>& picture, const ResizeOptions& options, std::span<float> out) {
  if (picture.height < 1 || picture.width < 1 || options.height < 1 || options.width < 1) {
    throw InvalidArgument(fmt::format("resize from {}x{} to {}x{} pixels: expected at least 1x1",
                                      picture.width, picture.height, options.width, options.height));
  }
  if (picture.channels != 1 && picture.channels != 3 && picture.channels != 4) {
    throw InvalidArgument(
        fmt::format("resize of a picture with {} channels: expected 1, 3 or 4", picture.channels));
  }
  const std::size_t wanted = static_cast<std::size_t>(options.height) * options.width * picture.channels;
  if (out.size() != wanted) {
    throw InvalidArgument(fmt::format("resize into {} values: expected {} of {}x{}x{}", out.size(), wanted,
                                      picture.channels, options.height, options.width));
  }
}

template <typename Value>
void resize_any(const PictureView<Value>& picture, const ResizeOptions& options, std::span<float> out) {
  check(picture, options, out);
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return resize_by_avx2(picture, options, out.data());
#endif
  resize_anywhere(picture, options, out.data());
}

}  // namespace

Normalization normalization(std::span<const float> mean, std::span<const float> deviation) {
  Normalization result;
  if (mean.size() != deviation.size() || mean.size() > result.scale.size()) {
    throw InvalidArgument(
        fmt::format("normalization with {} means and {} deviations: expected one of each for "
                    "each channel, at most {}",
                    mean.size(), deviation.size(), result.scale.size()));
  }
  for (std::size_t c = 0; c < mean.size(); ++c) {
    if (!(deviation[c] > 0)) {
      throw InvalidArgument(fmt::format("deviation {} of channel {}: expected more than 0", deviation[c], c));
    }
    result.scale[c] = 1 / (255 * deviation[c]);
    result.shift[c] = -mean[c] / deviation[c];
  }
  return result;
}

void resize(const PictureView<std::uint8_t>& picture, const ResizeOptions& options, std::span<float> out) {
  resize_any(picture, options, out);
}

void resize(const PictureView<float>& picture, const ResizeOptions& options, std::span<float> out) {
  resize_any(picture, options, out);
}

void resize_without_avx2(const PictureView<std::uint8_t>& picture, const ResizeOptions& options,
                         std::span<float> out) {
  check(picture, options, out);
  resize_anywhere(picture, options, out.data());
}

}  // namespace tandem::internal
