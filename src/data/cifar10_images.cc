#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tandem/data/cifar10.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

constexpr int kSide = 32;
constexpr int kChannels = 3;
constexpr int kPixels = kChannels * kSide * kSide;
constexpr int kPadding = 4;

struct Moments {
  double mean;
  double scale;  // one by the adjusted standard deviation
};

Moments moments_of(double sum, double sum_of_squares, double n) {
  const double mean = sum / n;
  const double stddev = std::sqrt(std::max(0.0, sum_of_squares / n - mean * mean));
  return {mean, 1 / std::max(stddev, 1 / std::sqrt(n))};
}

// These run for every picture of every epoch, on bare memory: a handful of libtorch operations on 3,072
// values would take longer than all of it. Sums of bytes are exact.
Moments moments_of(const std::uint8_t* in, std::int64_t n) {
  std::uint64_t sum = 0;
  std::uint64_t sum_of_squares = 0;
  constexpr std::int64_t kBlock = 1 << 15;  // its sum of squares fits 32 bits, which vectorises better
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    std::uint32_t block_sum = 0;
    std::uint32_t block_squares = 0;
    for (std::int64_t i = begin; i < std::min(begin + kBlock, n); ++i) {
      const std::uint32_t value = in[i];
      block_sum += value;
      block_squares += value * value;
    }
    sum += block_sum;
    sum_of_squares += block_squares;
  }
  return moments_of(static_cast<double>(sum), static_cast<double>(sum_of_squares), static_cast<double>(n));
}

Moments moments_of(const float* in, std::int64_t n) {
  // Around the first value, so that a large mean leaves the spread its digits.
  const double around = in[0];
  double sum = 0;
  double sum_of_squares = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = in[i] - around;
    sum += value;
    sum_of_squares += value * value;
  }
  Moments moments = moments_of(sum, sum_of_squares, static_cast<double>(n));
  moments.mean += around;
  return moments;
}

template <typename T>
void standardize(const T* in, std::int64_t n, float* out) {
  const Moments moments = moments_of(in, n);
  const auto mean = static_cast<float>(moments.mean);
  const auto scale = static_cast<float>(moments.scale);
  for (std::int64_t i = 0; i < n; ++i) out[i] = (static_cast<float>(in[i]) - mean) * scale;
}

void reverse_row(std::uint8_t* row) {
  std::array<std::uint64_t, kSide / 8> words;
  std::memcpy(words.data(), row, kSide);
  std::ranges::reverse(words);
  for (auto& word : words) word = __builtin_bswap64(word);
  std::memcpy(row, words.data(), kSide);
}

// The 32x32 window of the padded picture whose corner is (top, left) pixels from the picture's own.
void crop(const std::uint8_t* in, int top, int left, bool flip, std::uint8_t* out) {
  const int first_row = std::max(0, -top);
  const int last_row = std::min(kSide, kSide - top);
  const int first_column = std::max(0, -left);
  const int columns = kSide - std::abs(left);
  std::memset(out, 0, kPixels);
  for (int channel = 0; channel < kChannels; ++channel) {
    for (int row = first_row; row < last_row; ++row) {
      const std::uint8_t* from = in + (channel * kSide + row + top) * kSide + first_column + left;
      std::uint8_t* to = out + (channel * kSide + row) * kSide;
      std::memcpy(to + first_column, from, columns);
      if (flip) reverse_row(to);
    }
  }
}

const at::Tensor& check_picture(const at::Tensor& image) {
  if (image.scalar_type() != at::kByte || image.sizes() != at::IntArrayRef({kChannels, kSide, kSide})) {
    throw InvalidArgument(fmt::format("augment_cifar: expected a picture Byte [3, 32, 32], got {} [{}]",
                                      c10::toString(image.scalar_type()), fmt::join(image.sizes(), ", ")));
  }
  return image;
}

}  // namespace

Batch augment_cifar(Batch example, ExampleRandom& random) {
  const at::Tensor image = check_picture(example.x).contiguous();
  const int top = static_cast<int>(random.uniform_int(2 * kPadding + 1)) - kPadding;
  const int left = static_cast<int>(random.uniform_int(2 * kPadding + 1)) - kPadding;
  const bool flip = random.uniform_int(2) == 1;
  std::array<std::uint8_t, kPixels> cropped;
  crop(image.data_ptr<std::uint8_t>(), top, left, flip, cropped.data());
  at::Tensor out = at::empty({kChannels, kSide, kSide}, at::kFloat);
  standardize(cropped.data(), kPixels, out.data_ptr<float>());
  example.x = std::move(out);
  return example;
}

Batch prepare_cifar(Batch example) {
  example.x = standardize_image(example.x);
  return example;
}

at::Tensor standardize_image(const at::Tensor& image) {
  at::Tensor out = at::empty(image.sizes(), at::kFloat);
  if (image.numel() == 0) return out;
  if (image.scalar_type() == at::kByte) {
    const at::Tensor in = image.contiguous();
    standardize(in.data_ptr<std::uint8_t>(), in.numel(), out.data_ptr<float>());
  } else {
    const at::Tensor in = image.to(at::kFloat).contiguous();
    standardize(in.data_ptr<float>(), in.numel(), out.data_ptr<float>());
  }
  return out;
}

}  // namespace tandem::data
