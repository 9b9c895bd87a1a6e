#include "data/synthetic_pictures.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "tandem/example_random.h"

namespace tandem::internal {
namespace {

constexpr int kWaves = 4;     // that a pattern is the sum of
constexpr int kMaxShift = 6;  // pixels each way

// Levels of the 0 to 255: the noise alone hides a pattern in any one pixel, yet nothing is ever cut off.
constexpr double kPatternLevels = 48;
constexpr int kNoiseLevels = 64;

enum Stream : std::uint64_t { kPatterns = 1, kTrainLabels, kTestLabels, kTrainPictures, kTestPictures };

// Where a row of a pattern begins. It is twice as wide as a picture: a row at any shift is then in one piece.
std::size_t row_of(const SyntheticShape& shape, int channel, int row) {
  return (static_cast<std::size_t>(channel) * shape.side + row) * 2 * shape.side;
}

// One period of a class's pattern: some waves of one to three periods per picture, each with a direction, a
// colour and a phase of its own.
std::vector<std::int8_t> make_pattern(const SyntheticShape& shape, ExampleRandom random) {
  struct Wave {
    double across, down, phase;
    std::vector<double> colour;
  };
  std::array<Wave, kWaves> waves;
  for (auto& [across, down, phase, colour] : waves) {
    across = static_cast<double>(random.uniform_int(4));
    down = static_cast<double>(1 + random.uniform_int(3)) * (random.uniform_int(2) == 1 ? 1 : -1);
    phase = 2 * std::numbers::pi * random.uniform();
    for (int c = 0; c < shape.channels; ++c) colour.push_back((2 * random.uniform() - 1) / kWaves);
  }
  std::vector<std::int8_t> pattern;
  for (int channel = 0; channel < shape.channels; ++channel) {
    for (int row = 0; row < shape.side; ++row) {
      for (int column = 0; column < 2 * shape.side; ++column) {
        double value = 0;
        for (const auto& [across, down, phase, colour] : waves) {
          const double turns = (across * column + down * row) / shape.side;
          value += colour[channel] * std::cos(2 * std::numbers::pi * turns + phase);
        }
        pattern.push_back(static_cast<std::int8_t>(std::lround(kPatternLevels * value)));
      }
    }
  }
  return pattern;
}

}  // namespace

SyntheticPictures::SyntheticPictures(const SyntheticShape& shape, data::Split split, std::uint64_t seed)
    : shape_(shape),
      label_seed_(seed_of_stream(seed, split == data::Split::kTrain ? kTrainLabels : kTestLabels)),
      picture_seed_(seed_of_stream(seed, split == data::Split::kTrain ? kTrainPictures : kTestPictures)) {
  for (int label = 0; label < kClasses; ++label) {
    patterns_[label] = make_pattern(shape, ExampleRandom(seed_of_stream(seed, kPatterns), 0, label));
  }
}

// Every ten examples have all ten labels, in an order of their own.
int SyntheticPictures::label(std::int64_t index) const {
  std::array<int, kClasses> order;
  std::iota(order.begin(), order.end(), 0);
  ExampleRandom random(label_seed_, 0, index / kClasses);
  for (int i = kClasses - 1; i > 0; --i) std::swap(order[i], order[random.uniform_int(i + 1)]);
  return order[index % kClasses];
}

void SyntheticPictures::draw(std::int64_t index, std::uint8_t* out) const {
  const std::vector<std::int8_t>& pattern = patterns_[label(index)];
  ExampleRandom random(picture_seed_, 0, index);
  const int side = shape_.side;
  const auto shift = [&] {
    return static_cast<int>(random.uniform_int(2 * kMaxShift + 1) + side - kMaxShift) % side;
  };
  const int down = shift();
  const int across = shift();
  std::vector<std::uint64_t> words((side + 7) / 8);
  std::vector<std::uint8_t> noise(words.size() * 8);
  for (int channel = 0; channel < shape_.channels; ++channel) {
    for (int row = 0; row < side; ++row, out += side) {
      for (auto& word : words) word = random.bits();
      std::memcpy(noise.data(), words.data(), noise.size());
      const std::int8_t* levels = pattern.data() + row_of(shape_, channel, (row + down) % side) + across;
      for (int column = 0; column < side; ++column) {
        out[column] = static_cast<std::uint8_t>(128 - kNoiseLevels + noise[column] / 2 + levels[column]);
      }
    }
  }
}

}  // namespace tandem::internal
