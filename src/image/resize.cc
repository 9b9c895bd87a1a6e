#include "image/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
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

// A row of the picture at the width of the output, one plane per channel. The loads jump about, so this is
// the part that no vector instruction helps with: each row goes through it once.
template <int kChannels, typename Value>
void squeeze_row(const Value* row, const Between& columns, int width, float* __restrict out) {
  const int* const lower = columns.lower.data();
  const int* const upper = columns.upper.data();
  const float* const part = columns.part.data();
  for (int x = 0; x < width; ++x) {
    const Value* const left = row + std::ptrdiff_t{lower[x]} * kChannels;
    const Value* const right = row + std::ptrdiff_t{upper[x]} * kChannels;
    for (int c = 0; c < kChannels; ++c) {
      const auto from = static_cast<float>(left[c]);
      out[c * width + x] = from + (static_cast<float>(right[c]) - from) * part[x];
    }
  }
}

void blend_rows(const float* __restrict top, const float* __restrict bottom, float part, float scale,
                float shift, int width, float* __restrict out) {
  for (int x = 0; x < width; ++x) out[x] = (top[x] + (bottom[x] - top[x]) * part) * scale + shift;
}

// Across first, then down, as TensorFlow does. Two rows of the picture are kept as they are across.
template <int kChannels, typename Value>
void resize_between(const PictureView<Value>& picture, const ResizeOptions& options, float* out) {
  const int width = options.width;
  Between columns = between(picture.width, width);
  if (options.flip) mirror(columns);
  const Between rows = between(picture.height, options.height);
  const std::size_t plane = static_cast<std::size_t>(options.height) * width;

  struct Kept {
    int row = -1;
    std::vector<float> values;
  };
  Kept top{-1, std::vector<float>(static_cast<std::size_t>(kChannels) * width)};
  Kept bottom = top;
  const auto want = [&](Kept& kept, int row) {
    if (kept.row == row) return;
    squeeze_row<kChannels>(picture.pixels + row * picture.row_step, columns, width, kept.values.data());
    kept.row = row;
  };
  for (int y = 0; y < options.height; ++y) {
    if (bottom.row == rows.lower[y]) std::swap(top, bottom);
    want(top, rows.lower[y]);
    want(bottom, rows.upper[y]);
    for (int c = 0; c < kChannels; ++c) {
      blend_rows(top.values.data() + c * width, bottom.values.data() + c * width, rows.part[y],
                 options.normalization.scale[c], options.normalization.shift[c], width,
                 out + c * plane + static_cast<std::size_t>(y) * width);
    }
  }
}

template <typename Value>
void add_row(const Value* __restrict row, float weight, std::ptrdiff_t values, float* __restrict sum) {
  for (std::ptrdiff_t i = 0; i < values; ++i) sum[i] += static_cast<float>(row[i]) * weight;
}

// Down first: that part is for vector instructions, and leaves fewer rows for the other.
template <int kChannels, typename Value>
void resize_runs(const PictureView<Value>& picture, const ResizeOptions& options, float* out) {
  Runs columns = runs(picture.width, options.width);
  if (options.flip) mirror(columns);
  const Runs rows = runs(picture.height, options.height);
  const std::size_t plane = static_cast<std::size_t>(options.height) * options.width;
  std::vector<float> sum(static_cast<std::size_t>(picture.width) * kChannels);
  for (int y = 0; y < options.height; ++y, out += options.width) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int k = 0; k < rows.count[y]; ++k) {
      add_row(picture.pixels + (rows.first[y] + k) * picture.row_step,
              rows.weights[static_cast<std::size_t>(y) * rows.most + k], std::ssize(sum), sum.data());
    }
    for (int x = 0; x < options.width; ++x) {
      const float* from = sum.data() + std::ptrdiff_t{columns.first[x]} * kChannels;
      const float* const weights = columns.weights.data() + static_cast<std::size_t>(x) * columns.most;
      std::array<float, kChannels> value{};
      for (int k = 0; k < columns.count[x]; ++k, from += kChannels) {
        for (int c = 0; c < kChannels; ++c) value[c] += from[c] * weights[k];
      }
      for (int c = 0; c < kChannels; ++c) {
        out[c * plane + x] = value[c] * options.normalization.scale[c] + options.normalization.shift[c];
      }
    }
  }
}

template <int kChannels, typename Value>
void resize_channels(const PictureView<Value>& picture, const ResizeOptions& options, float* out) {
  if (options.bilinear == Bilinear::kTorchAntialias) {
    resize_runs<kChannels>(picture, options, out);
  } else {
    resize_between<kChannels>(picture, options, out);
  }
}

template <typename Value>
void resize_any(const PictureView<Value>& picture, const ResizeOptions& options, std::span<float> out) {
  if (picture.height < 1 || picture.width < 1 || options.height < 1 || options.width < 1) {
    throw InvalidArgument(fmt::format("resize from {}x{} to {}x{} pixels: expected at least 1x1",
                                      picture.width, picture.height, options.width, options.height));
  }
  const std::size_t wanted = static_cast<std::size_t>(options.height) * options.width * picture.channels;
  if (out.size() != wanted) {
    throw InvalidArgument(fmt::format("resize into {} values: expected {} of {}x{}x{}", out.size(), wanted,
                                      picture.channels, options.height, options.width));
  }
  switch (picture.channels) {
    case 1:
      return resize_channels<1>(picture, options, out.data());
    case 3:
      return resize_channels<3>(picture, options, out.data());
    case 4:
      return resize_channels<4>(picture, options, out.data());
    default:
      throw InvalidArgument(
          fmt::format("resize of a picture with {} channels: expected 1, 3 or 4", picture.channels));
  }
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

}  // namespace tandem::internal
