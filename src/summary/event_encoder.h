#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "summary/histogram.h"

namespace tandem::internal {

// The messages of an event file, as bytes for a record. Tags must be UTF-8.

struct EventTime {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
};

// The first message of every file.
std::string encode_file_version(double wall_time);
// Hides what earlier files of the folder have for this step and later ones.
std::string encode_session_start(EventTime time);

std::string encode_scalar(EventTime time, std::string_view tag, float value);
std::string encode_simple_scalar(EventTime time, std::string_view tag, float value);
std::string encode_histogram(EventTime time, std::string_view tag,
                             const std::vector<HistogramBucket>& buckets);
// Pictures of one size, as the bytes of PNG files.
std::string encode_images(EventTime time, std::string_view tag, std::int64_t width, std::int64_t height,
                          const std::vector<std::string>& png);
std::string encode_text(EventTime time, std::string_view tag, std::string_view text);
// `content` is a message of hparams.proto.
std::string encode_hparams(double wall_time, std::string_view tag, std::string_view content);

}  // namespace tandem::internal
