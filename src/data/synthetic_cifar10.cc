#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "tandem/data/cifar10.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

constexpr int kSide = 32;
constexpr int kChannels = 3;
constexpr int kPixels = kChannels * kSide * kSide;
constexpr int kClasses = 10;
constexpr int kWaves = 4;     // that a pattern is the sum of
constexpr int kMaxShift = 6;  // pixels each way

// Levels of the 0 to 255: the noise alone hides a pattern in any one pixel, yet nothing is ever cut off.
constexpr double kPatternLevels = 48;
constexpr int kNoiseLevels = 64;

enum Stream : std::uint64_t { kPatterns = 1, kTrainLabels, kTestLabels, kTrainPictures, kTestPictures };

// One period of a class's pattern. Twice as wide as a picture: a row at any shift is then in one piece.
using Pattern = std::array<std::array<std::array<std::int8_t, 2 * kSide>, kSide>, kChannels>;

// Some waves of one to three periods per picture, each with a direction, a colour and a phase of its own.
Pattern make_pattern(ExampleRandom random) {
  struct Wave {
    double across, down, phase;
    std::array<double, kChannels> colour;
  };
  std::array<Wave, kWaves> waves;
  for (auto& [across, down, phase, colour] : waves) {
    across = static_cast<double>(random.uniform_int(4));
    down = static_cast<double>(1 + random.uniform_int(3)) * (random.uniform_int(2) == 1 ? 1 : -1);
    phase = 2 * std::numbers::pi * random.uniform();
    for (double& level : colour) level = (2 * random.uniform() - 1) / kWaves;
  }
  Pattern pattern;
  for (int channel = 0; channel < kChannels; ++channel) {
    for (int row = 0; row < kSide; ++row) {
      for (int column = 0; column < 2 * kSide; ++column) {
        double value = 0;
        for (const auto& [across, down, phase, colour] : waves) {
          const double turns = (across * column + down * row) / kSide;
          value += colour[channel] * std::cos(2 * std::numbers::pi * turns + phase);
        }
        pattern[channel][row][column] = static_cast<std::int8_t>(std::lround(kPatternLevels * value));
      }
    }
  }
  return pattern;
}

class Generator {
 public:
  Generator(Split split, std::uint64_t seed)
      : label_seed_(internal::seed_of_stream(seed, split == Split::kTrain ? kTrainLabels : kTestLabels)),
        picture_seed_(
            internal::seed_of_stream(seed, split == Split::kTrain ? kTrainPictures : kTestPictures)) {
    for (int label = 0; label < kClasses; ++label) {
      patterns_[label] = make_pattern(ExampleRandom(internal::seed_of_stream(seed, kPatterns), 0, label));
    }
  }

  Batch example(std::int64_t index) const {
    const int label = label_of(index);
    Batch batch{at::empty({kChannels, kSide, kSide}, at::kByte), at::empty({}, at::kLong)};
    draw(patterns_[label], ExampleRandom(picture_seed_, 0, index), batch.x.tensor().data_ptr<std::uint8_t>());
    *batch.y.tensor().data_ptr<std::int64_t>() = label;
    return batch;
  }

 private:
  // Every ten examples have all ten labels, in an order of their own.
  int label_of(std::int64_t index) const {
    std::array<int, kClasses> order;
    std::iota(order.begin(), order.end(), 0);
    ExampleRandom random(label_seed_, 0, index / kClasses);
    for (int i = kClasses - 1; i > 0; --i) std::swap(order[i], order[random.uniform_int(i + 1)]);
    return order[index % kClasses];
  }

  static void draw(const Pattern& pattern, ExampleRandom random, std::uint8_t* out) {
    const auto shift = [&] {
      return static_cast<int>(random.uniform_int(2 * kMaxShift + 1) + kSide - kMaxShift) % kSide;
    };
    const int down = shift();
    const int across = shift();
    for (int channel = 0; channel < kChannels; ++channel) {
      for (int row = 0; row < kSide; ++row, out += kSide) {
        std::array<std::uint64_t, kSide / 8> words;
        for (auto& word : words) word = random.bits();
        std::array<std::uint8_t, kSide> noise;
        std::memcpy(noise.data(), words.data(), kSide);
        const std::int8_t* levels = pattern[channel][(row + down) % kSide].data() + across;
        for (int column = 0; column < kSide; ++column) {
          out[column] = static_cast<std::uint8_t>(128 - kNoiseLevels + noise[column] / 2 + levels[column]);
        }
      }
    }
  }

  std::uint64_t label_seed_;
  std::uint64_t picture_seed_;
  std::array<Pattern, kClasses> patterns_;
};

}  // namespace

Dataset synthetic_cifar10(Split split, std::int64_t examples, std::uint64_t seed) {
  const auto generator = std::make_shared<const Generator>(split, seed);
  return Dataset::from_function(examples,
                                [generator](std::int64_t index) { return generator->example(index); });
}

}  // namespace tandem::data
