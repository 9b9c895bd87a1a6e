// Any bytes as a JPEG file: refused with one line that names it, or a picture of the size that its header
// says, which comes out smaller only when that was asked for, and always the same.
//
// The first byte says which channels and what size are asked for.
#include "image/jpeg.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

constexpr std::int64_t kMostPixels = 1 << 14;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return -1;
  constexpr int kChannels[] = {0, 1, 3};
  const int smaller = data[0] / 3 % 2 * 3;
  const JpegOptions options{.channels = kChannels[data[0] % 3],
                            .min_height = smaller,
                            .min_width = smaller,
                            .max_pixels = kMostPixels};
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Picture picture;
  try {
    picture = decode_jpeg(bytes, "fuzz", options);
  } catch (const DataLoss& error) {
    const std::string line = error.what();
    require(line.starts_with("\"fuzz\" "), "a refusal names the file");
    require(line.find('\n') == std::string::npos && line.size() < 300, "a refusal is one line");
    return -1;
  }
  require(picture.channels == options.channels || options.channels == 0, "it has the channels asked for");
  require(picture.pixels.size() == std::size_t(picture.height) * picture.width * picture.channels,
          "it has all its pixels");
  require(picture.pixels.size() <= 3 * kMostPixels, "it is within the limit");
  const PictureSize whole = jpeg_size(bytes, "fuzz");
  if (smaller == 0) {
    require(picture.height == whole.height && picture.width == whole.width, "it is of the size that it says");
  } else {
    require(
        picture.height >= std::min(smaller, whole.height) && picture.width >= std::min(smaller, whole.width),
        "it is no smaller than asked for");
  }
  require(decode_jpeg(bytes, "fuzz", options).pixels == picture.pixels, "it is the same again");
  return 0;
}
