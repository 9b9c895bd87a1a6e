#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/image/picture.h"

namespace tandem::internal {

struct PngOptions {
  // 1 grey, 3 RGB, 4 RGB and alpha, 0 as the file has it (then 1, 3 or 4).
  int channels = 3;

  // A larger picture is refused before memory is taken for it.
  std::int64_t max_pixels = std::int64_t{1} << 26;
};

// Decodes a PNG file as TensorFlow's decode_png does to eight bits: grey, RGB, palette, with and without
// transparency, of 1 to 16 bits (of 16 the upper 8), interlaced or not. Transparency that is not asked for is
// dropped, not painted over anything; gamma is left alone. Any thread may call it.
//
// Throws DataLoss, naming the file, for bytes that are no PNG file, or a damaged, cut-off or too large one;
// InvalidArgument for a number of channels that there is not.
Picture decode_png(std::string_view bytes, const std::string& name, const PngOptions& options = {});

}  // namespace tandem::internal
