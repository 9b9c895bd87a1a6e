#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/image/picture.h"

namespace tandem::internal {

struct JpegOptions {
  // 1 grey, 3 RGB, 0 as the file has it (then 1 or 3).
  int channels = 3;

  // The picture may come out smaller, but not below these: it is decoded at 1/8, 1/4 or 1/2 of its size,
  // which costs far less, if that is enough. 0: at its full size.
  int min_height = 0;
  int min_width = 0;

  // A larger picture is refused before memory is taken for it. What counts is the size that it is decoded
  // at; of a progressive file, which must be held whole, the full size.
  std::int64_t max_pixels = std::int64_t{1} << 26;
};

struct PictureSize {
  int height = 0;
  int width = 0;
};

// What the header of a JPEG file says. Throws as decode_jpeg does.
PictureSize jpeg_size(std::string_view bytes, const std::string& name);

// Decodes a JPEG file to the bit as TensorFlow's decode_jpeg does at that ratio with
// dct_method="INTEGER_ACCURATE", libjpeg's default (TensorFlow's is the fast one, which is off by 1 in the
// mean): grey and colour, CMYK turned into RGB, baseline and progressive; a rotation that EXIF asks for is
// not done. Any thread may call it.
//
// Throws DataLoss, naming the file, for bytes that are no JPEG file, or a damaged, cut-off or too large one;
// InvalidArgument for a number of channels that there is not.
Picture decode_jpeg(std::string_view bytes, const std::string& name, const JpegOptions& options = {});

}  // namespace tandem::internal
