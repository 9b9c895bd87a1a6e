#include "data/image/png.h"

#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

// The bytes of one chunk beside the pixels (a comment, a colour profile) that memory is taken for.
constexpr std::size_t kMostChunkBytes = 1 << 20;
constexpr int kMostChunks = 100;

// libpng tells of an error by a call that must not return: it jumps back, out of C code, to the one place in
// Decoder that called it. Nothing between the two may have a destructor.
class Decoder {
 public:
  Decoder(std::string_view bytes, const std::string& name, const PngOptions& options)
      : name_(name), options_(options), bytes_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, leave, be_silent);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw Error(ErrorCode::kInternal, "libpng cannot be used: it has no memory, or is another version");
    }
  }
  ~Decoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Picture decode() {
    check(open());
    const std::int64_t height = png_get_image_height(png_, info_);
    const std::int64_t width = png_get_image_width(png_, info_);
    if (width > options_.max_pixels / height) {
      throw DataLoss(fmt::format("\"{}\" is a PNG of {}x{} pixels, and at most {} pixels are decoded", name_,
                                 width, height, options_.max_pixels));
    }
    check(choose_output());
    Picture picture{.height = static_cast<int>(height),
                    .width = static_cast<int>(width),
                    .channels = png_get_channels(png_, info_)};
    const std::size_t row = png_get_rowbytes(png_, info_);
    if (png_get_bit_depth(png_, info_) != 8 || row != static_cast<std::size_t>(width) * picture.channels) {
      throw Error(ErrorCode::kInternal, fmt::format("\"{}\": libpng does not make eight bits of it", name_));
    }
    picture.pixels.resize(row * static_cast<std::size_t>(height));
    std::vector<png_bytep> rows(static_cast<std::size_t>(height));
    for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = picture.pixels.data() + y * row;
    check(read(rows.data()));
    return picture;
  }

 private:
  static Decoder& of(png_structp png) { return *static_cast<Decoder*>(png_get_error_ptr(png)); }

  [[noreturn]] static void leave(png_structp png, png_const_charp message) {
    std::snprintf(of(png).complaint_, sizeof complaint_, "%s", message);
    std::longjmp(of(png).back_, 1);
  }
  // About what does not show in the pixels: those are errors.
  static void be_silent(png_structp, png_const_charp) {}

  static void give(png_structp png, png_bytep data, std::size_t wanted) {
    Decoder& decoder = of(png);
    if (wanted > decoder.bytes_.size()) {
      decoder.cut_off_ = true;
      png_error(png, "cut off");
    }
    std::memcpy(data, decoder.bytes_.data(), wanted);
    decoder.bytes_.remove_prefix(wanted);
  }

  // The three functions that libpng may jump out of: false if it did.
  bool open() {
    if (setjmp(back_)) return false;
    png_set_read_fn(png_, this, give);
    png_set_user_limits(png_, 0x7fffffff, 0x7fffffff);  // max_pixels is the limit
    png_set_chunk_malloc_max(png_, kMostChunkBytes);
    png_set_chunk_cache_max(png_, kMostChunks);
    png_read_info(png_, info_);
    return true;
  }
  bool choose_output() {
    if (setjmp(back_)) return false;
    const png_byte kind = png_get_color_type(png_, info_);
    const bool has_transparency = (kind & PNG_COLOR_MASK_ALPHA) || png_get_valid(png_, info_, PNG_INFO_tRNS);
    const bool has_color = kind & PNG_COLOR_MASK_COLOR;
    const int own = has_transparency ? 4 : has_color ? 3 : 1;
    const int channels = options_.channels == 0 ? own : options_.channels;
    png_set_expand(png_);  // to eight bits, palette to RGB, a transparent colour to alpha
    png_set_strip_16(png_);
    if (channels == 4) {
      if (!has_transparency) png_set_add_alpha(png_, 0xff, PNG_FILLER_AFTER);
    } else {
      png_set_strip_alpha(png_);
    }
    if (channels == 1) {
      if (has_color) png_set_rgb_to_gray(png_, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
    } else if (!has_color) {
      png_set_gray_to_rgb(png_);
    }
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool read(png_bytepp rows) {
    if (setjmp(back_)) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);  // the last checksum
    return true;
  }

  void check(bool good) const {
    if (good) return;
    if (cut_off_) throw DataLoss(fmt::format("\"{}\" is a PNG file that is cut off", name_));
    throw DataLoss(fmt::format("\"{}\" cannot be decoded as PNG: {}", name_, complaint_));
  }

  const std::string& name_;
  const PngOptions& options_;
  std::string_view bytes_;  // what libpng has not read yet
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf back_;
  bool cut_off_ = false;
  char complaint_[128] = {};
};

}  // namespace

Picture decode_png(std::string_view bytes, const std::string& name, const PngOptions& options) {
  if (options.channels != 0 && options.channels != 1 && options.channels != 3 && options.channels != 4) {
    throw InvalidArgument(fmt::format("PNG with {} channels: expected 0, 1, 3 or 4", options.channels));
  }
  if (bytes.size() < 8 || png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) != 0) {
    throw DataLoss(fmt::format("\"{}\" is no PNG file: it does not begin as one", name));
  }
  return Decoder(bytes, name, options).decode();
}

}  // namespace tandem::internal
