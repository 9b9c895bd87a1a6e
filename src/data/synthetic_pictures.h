#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tandem/data/split.h"

namespace tandem::internal {

struct SyntheticShape {
  int channels = 3;
  int side = 32;

  int values() const { return channels * side * side; }
};

inline constexpr SyntheticShape kSyntheticCifar10{3, 32};
inline constexpr SyntheticShape kSyntheticMnist{1, 28};

// Pictures of ten classes that a network can learn: each class has a pattern of its own, shifted and under
// noise. Picture i is a function of (seed, split, i). Every ten have all ten labels. Any thread may use it.
class SyntheticPictures {
 public:
  static constexpr int kClasses = 10;

  SyntheticPictures(const SyntheticShape& shape, data::Split split, std::uint64_t seed);

  const SyntheticShape& shape() const { return shape_; }
  int label(std::int64_t index) const;
  // Writes shape().values() bytes, a plane for each channel.
  void draw(std::int64_t index, std::uint8_t* out) const;

 private:
  SyntheticShape shape_;
  std::uint64_t label_seed_;
  std::uint64_t picture_seed_;
  std::array<std::vector<std::int8_t>, kClasses> patterns_;
};

}  // namespace tandem::internal
