#include "data/image/jpeg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
// These two want the ones above.
#include <jerror.h>
#include <jpeglib.h>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

// Every further scan of a progressive file walks over the whole picture, so a small file can ask for hours.
constexpr int kMostScans = 500;

// libjpeg tells of an error by a call that must not return: it jumps back, out of C code, to the one place in
// Decoder that called it. Nothing between the two may have a destructor.
struct Complaint {
  jpeg_error_mgr manager;  // first: libjpeg knows only this
  std::jmp_buf back;
  bool cut_off;
  char text[JMSG_LENGTH_MAX];
};

Complaint& complaint_of(j_common_ptr info) {
  return *reinterpret_cast<Complaint*>(info->err);
}

[[noreturn]] void leave(j_common_ptr info) {
  Complaint& complaint = complaint_of(info);
  complaint.cut_off = info->err->msg_code == JWRN_JPEG_EOF || info->err->msg_code == JERR_INPUT_EOF;
  info->err->format_message(info, complaint.text);
  std::longjmp(complaint.back, 1);
}

// libjpeg goes on after a warning, with grey where the picture was. Some are about nothing that shows.
void judge(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
      return;
    default:
      leave(info);
  }
}

void be_silent(j_common_ptr) {}

void count_scans(j_common_ptr info) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number <= kMostScans) return;
  std::snprintf(complaint_of(info).text, JMSG_LENGTH_MAX, "more than %d scans", kMostScans);
  std::longjmp(complaint_of(info).back, 1);
}

// Round to nearest of a * b / 255, which is what an ink lets through of a light.
JSAMPLE through(int a, int b) {
  return static_cast<JSAMPLE>((a * b + 127) / 255);
}

// Adobe's files say how much light is left, others how much ink there is.
void to_rgb(const JSAMPLE* cmyk, bool light_left, JSAMPLE* rgb, unsigned width) {
  for (unsigned x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    for (int c = 0; c < 3; ++c) {
      rgb[c] = light_left ? through(cmyk[c], cmyk[3]) : through(255 - cmyk[c], 255 - cmyk[3]);
    }
  }
}

class Decoder {
 public:
  Decoder(std::string_view bytes, const std::string& name) : name_(name) {
    info_.err = jpeg_std_error(&complaint_.manager);
    complaint_.manager.error_exit = leave;
    complaint_.manager.emit_message = judge;
    complaint_.manager.output_message = be_silent;
    check(open(bytes.data(), bytes.size()));
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  PictureSize size() const {
    return {static_cast<int>(info_.image_height), static_cast<int>(info_.image_width)};
  }

  Picture decode(const JpegOptions& options) {
    const int own_channels = info_.num_components == 1 ? 1 : 3;
    Picture picture;
    picture.channels = options.channels == 0 ? own_channels : options.channels;
    const bool cmyk = info_.num_components == 4;
    if (cmyk && picture.channels == 1) {
      throw DataLoss(
          fmt::format("\"{}\" is a CMYK JPEG, of which no grey picture is made: ask for 3 channels", name_));
    }
    info_.out_color_space = cmyk ? JCS_CMYK : picture.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(reduction(options));
    check(measure());
    picture.height = static_cast<int>(info_.output_height);
    picture.width = static_cast<int>(info_.output_width);

    const bool whole = jpeg_has_multiple_scans(&info_);
    const std::int64_t pixels = whole ? std::int64_t{info_.image_height} * info_.image_width
                                      : std::int64_t{picture.height} * picture.width;
    if (pixels > options.max_pixels) {
      throw DataLoss(fmt::format("\"{}\" is a {}JPEG of {}x{} pixels, and at most {} pixels are decoded",
                                 name_, whole ? "progressive " : "", info_.image_width, info_.image_height,
                                 options.max_pixels));
    }
    const std::size_t row = static_cast<std::size_t>(picture.width) * picture.channels;
    picture.pixels.resize(row * picture.height);
    if (cmyk) {
      std::vector<JSAMPLE> inks(std::size_t{4} * info_.output_width);
      check(read_cmyk(picture.pixels.data(), row, inks.data()));
    } else {
      check(read(picture.pixels.data(), row));
    }
    return picture;
  }

 private:
  // 8, 4, 2 or 1; libjpeg can do the sizes between as well.
  int reduction(const JpegOptions& options) const {
    if (options.min_height <= 0 && options.min_width <= 0) return 1;
    for (const unsigned by : {8u, 4u, 2u}) {
      const auto enough = [by](unsigned size, int wanted) {
        return static_cast<std::int64_t>((size + by - 1) / by) >= wanted;
      };
      if (enough(info_.image_height, options.min_height) && enough(info_.image_width, options.min_width)) {
        return static_cast<int>(by);
      }
    }
    return 1;
  }

  // The four functions that libjpeg may jump out of: false if it did.
  bool open(const char* bytes, std::size_t size) {
    if (setjmp(complaint_.back)) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes), size);
    jpeg_read_header(&info_, TRUE);
    info_.progress = &progress_;
    progress_.progress_monitor = count_scans;
    return true;
  }
  bool measure() {
    if (setjmp(complaint_.back)) return false;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }
  bool read(JSAMPLE* pixels, std::size_t row) {
    if (setjmp(complaint_.back)) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      std::array<JSAMPROW, 8> rows;
      const unsigned count = std::min(info_.output_height - info_.output_scanline, unsigned{rows.size()});
      for (unsigned i = 0; i < count; ++i) rows[i] = pixels + (info_.output_scanline + i) * row;
      jpeg_read_scanlines(&info_, rows.data(), count);
    }
    return true;
  }
  bool read_cmyk(JSAMPLE* pixels, std::size_t row, JSAMPLE* inks) {
    if (setjmp(complaint_.back)) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPLE* const out = pixels + info_.output_scanline * row;
      jpeg_read_scanlines(&info_, &inks, 1);
      to_rgb(inks, info_.saw_Adobe_marker, out, info_.output_width);
    }
    return true;
  }

  void check(bool good) const {
    if (good) return;
    if (complaint_.cut_off) throw DataLoss(fmt::format("\"{}\" is a JPEG file that is cut off", name_));
    throw DataLoss(fmt::format("\"{}\" cannot be decoded as JPEG: {}", name_, complaint_.text));
  }

  const std::string& name_;
  Complaint complaint_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

}  // namespace

PictureSize jpeg_size(std::string_view bytes, const std::string& name) {
  return Decoder(bytes, name).size();
}

Picture decode_jpeg(std::string_view bytes, const std::string& name, const JpegOptions& options) {
  if (options.channels != 0 && options.channels != 1 && options.channels != 3) {
    throw InvalidArgument(fmt::format("JPEG with {} channels: expected 0, 1 or 3", options.channels));
  }
  return Decoder(bytes, name).decode(options);
}

}  // namespace tandem::internal
