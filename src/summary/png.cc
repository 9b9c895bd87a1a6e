#include "summary/png.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <string_view>
#include <vector>

namespace tandem::internal {
namespace {

void append_u32(std::string& out, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift);
}

// length | type | data | CRC-32 of type and data
void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_u32(out, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = out.size();
  out += type;
  out += data;
  const auto* covered = reinterpret_cast<const Bytef*>(out.data() + begin);
  append_u32(out, static_cast<std::uint32_t>(crc32_z(0, covered, out.size() - begin)));
}

std::string header(const ImageView& image) {
  constexpr std::array<char, 5> kColourTypes{0, 0, 4, 2, 6};  // by channels
  std::string data;
  append_u32(data, static_cast<std::uint32_t>(image.width));
  append_u32(data, static_cast<std::uint32_t>(image.height));
  data += '\x08';  // bits of a channel
  data += kColourTypes[static_cast<std::size_t>(image.channels)];
  data += std::string(3, '\0');  // deflate; the usual filters; rows in order
  return data;
}

// A row is stored as it is, or as differences from the pixel to the left, or from the row above, whichever
// has the smallest numbers: pictures change little from pixel to pixel, and zlib likes that.
class RowFilter {
 public:
  explicit RowFilter(const ImageView& image)
      : pixel_(static_cast<std::size_t>(image.channels)),
        above_(static_cast<std::size_t>(image.width) * pixel_) {
    for (auto& candidate : candidates_) candidate.resize(above_.size());
  }

  void append(std::string& out, const std::uint8_t* row) {
    std::array<std::uint64_t, 3> sums{};
    for (std::size_t i = 0; i < above_.size(); ++i) {
      const int left = i < pixel_ ? 0 : row[i - pixel_];
      const std::array<int, 3> predicted{0, left, above_[i]};
      for (std::size_t k = 0; k < 3; ++k) {
        candidates_[k][i] = static_cast<char>(row[i] - predicted[k]);
        sums[k] += static_cast<std::uint64_t>(
            std::abs(static_cast<int>(static_cast<std::int8_t>(candidates_[k][i]))));
      }
    }
    std::copy_n(row, above_.size(), above_.begin());
    const auto best = static_cast<std::size_t>(std::ranges::min_element(sums) - sums.begin());
    out += static_cast<char>(best);
    out += candidates_[best];
  }

 private:
  std::size_t pixel_;
  std::vector<std::uint8_t> above_;
  std::array<std::string, 3> candidates_;
};

std::string compressed(const std::string& data) {
  uLongf size = compressBound(data.size());
  std::string out(size, '\0');
  const int result =
      compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(data.data()),
                data.size(), Z_DEFAULT_COMPRESSION);
  if (result != Z_OK) throw std::bad_alloc();  // there is room enough, so nothing else can have failed
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(const ImageView& image) {
  const auto row_bytes = static_cast<std::size_t>(image.width * image.channels);
  std::string rows;
  rows.reserve(static_cast<std::size_t>(image.height) * (row_bytes + 1));
  RowFilter filter(image);
  for (std::int64_t y = 0; y < image.height; ++y) {
    filter.append(rows, image.pixels + static_cast<std::size_t>(y) * row_bytes);
  }
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header(image));
  append_chunk(out, "IDAT", compressed(rows));
  append_chunk(out, "IEND", {});
  return out;
}

}  // namespace tandem::internal
