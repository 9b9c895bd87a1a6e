#pragma once

// Pictures to decode, written by libjpeg and libpng themselves.
#include <png.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
// After <cstdio>, which it wants.
#include <jpeglib.h>

#include "data/image/picture.h"

namespace tandem::testing_support {

// Slow waves, so that little is lost when it is compressed or made smaller.
inline internal::Picture waves(int height, int width, int channels) {
  internal::Picture picture{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double value = 128 + 100 * std::sin(4.0 * x / width + c) * std::cos(5.0 * y / height - c);
        picture.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return picture;
}

struct JpegKind {
  int quality = 95;
  bool progressive = false;
  bool adobe = true;  // of CMYK: with Adobe's marker
};

// 1 channel is grey, 3 are RGB, 4 CMYK.
inline std::string encode_jpeg(const internal::Picture& picture, const JpegKind& kind = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.image_width = static_cast<JDIMENSION>(picture.width);
  info.input_components = picture.channels;
  info.in_color_space = picture.channels == 1 ? JCS_GRAYSCALE : picture.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (picture.channels == 4) info.write_Adobe_marker = kind.adobe;
  if (kind.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPLE*>(picture.pixels.data()) +
                std::size_t{info.next_scanline} * picture.width * picture.channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string result(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);
  return result;
}

struct PngKind {
  int color_type = PNG_COLOR_TYPE_RGB;
  int bits = 8;
  bool interlaced = false;
  std::vector<png_color> palette = {};
  std::vector<std::uint8_t> transparent = {};  // the alpha of the first colours of the palette
};

// `rows`: height rows as PNG has them, of `row_bytes` each.
inline std::string encode_png_rows(int height, int width, const PngKind& kind, const std::string& rows) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string bytes;
  png_set_write_fn(
      png, &bytes,
      [](png_structp writer, png_bytep data, std::size_t size) {
        static_cast<std::string*>(png_get_io_ptr(writer))->append(reinterpret_cast<const char*>(data), size);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), kind.bits,
               kind.color_type, kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty()) {
    png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
  }
  if (!kind.transparent.empty()) {
    png_set_tRNS(png, info, kind.transparent.data(), static_cast<int>(kind.transparent.size()), nullptr);
  }
  png_write_info(png, info);
  const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(height);
  std::vector<png_bytep> pointers;
  for (int y = 0; y < height; ++y) {
    pointers.push_back(reinterpret_cast<png_bytep>(const_cast<char*>(rows.data())) + y * row_bytes);
  }
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

inline std::string encode_png_picture(const internal::Picture& picture, bool interlaced = false) {
  const int type = picture.channels == 1   ? PNG_COLOR_TYPE_GRAY
                   : picture.channels == 3 ? PNG_COLOR_TYPE_RGB
                                           : PNG_COLOR_TYPE_RGB_ALPHA;
  return encode_png_rows(picture.height, picture.width, {.color_type = type, .interlaced = interlaced},
                         {picture.pixels.begin(), picture.pixels.end()});
}

}  // namespace tandem::testing_support
