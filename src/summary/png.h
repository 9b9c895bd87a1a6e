#pragma once

#include <string>

#include "tandem/summary.h"

namespace tandem::internal {

// The picture as the bytes of a PNG file. The view must be one that SummaryWriter::image takes.
std::string encode_png(const ImageView& image);

}  // namespace tandem::internal
