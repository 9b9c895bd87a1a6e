// Any bytes as a PNG file: refused with one line that names it, or a picture within the limit, always the
// same.
//
// The first byte says which channels are asked for, and whether the checksums are put right first (odd), so
// that changes get past them.
#include "data/image/png.h"

#include <zlib.h>

#include <cstdint>
#include <string>

#include "fuzz/pictures.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

// A chunk is a length, a name of four letters, the bytes, and a checksum over the two before it.
void mend(std::string& bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  for (std::size_t begin = 8; begin + 12 <= bytes.size();) {
    const std::size_t length =
        std::size_t{at(begin)} << 24 | at(begin + 1) << 16 | at(begin + 2) << 8 | at(begin + 3);
    if (length > bytes.size() - begin - 12) return;
    const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + begin + 4), uInt(length + 4));
    for (std::size_t i = 0; i < 4; ++i)
      bytes[begin + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    begin += length + 12;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return -1;
  constexpr int kChannels[] = {0, 1, 3, 4};
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) mend(bytes);
  const PngOptions options{.channels = kChannels[data[0] / 2 % 4], .max_pixels = fuzz::kMostPixels};
  Picture picture;
  fuzz::fill_new_memory(0x01);
  if (!fuzz::decodes([&] { return decode_png(bytes, "fuzz", options); }, picture)) return -1;
  fuzz::require_whole(picture, options.channels, 4);
  require(picture.channels == 1 || picture.channels == 3 || picture.channels == 4, "it has channels");
  fuzz::fill_new_memory(0xaa);
  require(decode_png(bytes, "fuzz", options).pixels == picture.pixels, "it is the same again");
  return 0;
}
