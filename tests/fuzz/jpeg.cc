// Any bytes as a JPEG file: refused with one line that names it, or a picture of the size that its header
// says, which comes out smaller only when that was asked for, and always the same.
//
// The first byte says which channels and what size are asked for.
//
// Under Valgrind with JSIMD_FORCENONE=1: libjpeg's vector code computes on what lies beyond the end of a row,
// too, and drops the result, which Valgrind cannot tell from using it.
#include "data/image/jpeg.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/pictures.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return -1;
  constexpr int kChannels[] = {0, 1, 3};
  const int smaller = data[0] / 3 % 2 * 3;
  const JpegOptions options{.channels = kChannels[data[0] % 3],
                            .min_height = smaller,
                            .min_width = smaller,
                            .max_pixels = fuzz::kMostPixels};
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Picture picture;
  fuzz::fill_new_memory(0x01);
  if (!fuzz::decodes([&] { return decode_jpeg(bytes, "fuzz", options); }, picture)) return -1;
  fuzz::require_whole(picture, options.channels, 3);
  const PictureSize whole = jpeg_size(bytes, "fuzz");
  if (smaller == 0) {
    require(picture.height == whole.height && picture.width == whole.width, "it is of the size that it says");
  } else {
    require(
        picture.height >= std::min(smaller, whole.height) && picture.width >= std::min(smaller, whole.width),
        "it is no smaller than asked for");
  }
  fuzz::fill_new_memory(0xaa);
  require(decode_jpeg(bytes, "fuzz", options).pixels == picture.pixels, "it is the same again");
  return 0;
}
