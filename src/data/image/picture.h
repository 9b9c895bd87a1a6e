#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::internal {

// Rows of pixels from top to bottom, the channels of a pixel side by side (HWC): as decoders write them.
struct Picture {
  int height = 0;
  int width = 0;
  int channels = 0;  // 1 grey, 3 RGB, 4 RGB and alpha
  std::vector<std::uint8_t> pixels = {};
};

// A rectangle of pixels.
struct Region {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;

  friend bool operator==(const Region&, const Region&) = default;
};

// Pixels that belong to somebody else, or a rectangle of them.
template <typename Value>
struct PictureView {
  const Value* pixels = nullptr;
  int height = 0;
  int width = 0;
  int channels = 0;
  std::ptrdiff_t row_step = 0;  // values from a row to the next

  // The region must lie inside.
  PictureView crop(const Region& region) const {
    return {pixels + region.top * row_step + std::ptrdiff_t{region.left} * channels, region.height,
            region.width, channels, row_step};
  }
};

inline PictureView<std::uint8_t> view_of(const Picture& picture) {
  return {picture.pixels.data(), picture.height, picture.width, picture.channels,
          std::ptrdiff_t{picture.width} * picture.channels};
}

}  // namespace tandem::internal
