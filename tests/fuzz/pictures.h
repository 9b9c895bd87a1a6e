#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/image/picture.h"
#include "fuzz/require.h"
#include "tandem/error.h"

namespace tandem::fuzz {

inline constexpr std::int64_t kMostPixels = 1 << 14;

// What new memory is filled with from here on (glibc; elsewhere nothing happens): a picture that has
// something of it in its pixels is another one then. Small pieces are left as they are, but not those that
// decoders ask for.
inline void fill_new_memory(int byte) {
#if defined(__GLIBC__)
  mallopt(M_PERTURB, ~byte & 0xff);
#endif
}

// What decode() makes of some bytes named "fuzz". False if it refuses them, as it should: with DataLoss, in
// one line that names the file.
template <typename Decode>
bool decodes(Decode decode, internal::Picture& picture) {
  try {
    picture = decode();
    return true;
  } catch (const DataLoss& error) {
    const std::string line = error.what();
    require(line.starts_with("\"fuzz\" "), "a refusal names the file");
    require(line.find('\n') == std::string::npos && line.size() < 300, "a refusal is one line");
    return false;
  }
}

// `channels`: those asked for; 0: any, of which there are `most_channels` at most.
inline void require_whole(const internal::Picture& picture, int channels, std::size_t most_channels) {
  require(picture.channels == channels || channels == 0, "it has the channels asked for");
  require(picture.pixels.size() == std::size_t(picture.height) * picture.width * picture.channels,
          "it has all its pixels");
  require(picture.pixels.size() <= most_channels * kMostPixels, "it is within the limit");
}

}  // namespace tandem::fuzz
