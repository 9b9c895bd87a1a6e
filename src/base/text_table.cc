#include "base/text_table.h"

#include <algorithm>
#include <cstddef>

namespace tandem::internal {
namespace {

std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](unsigned char byte) { return (byte & 0xc0) != 0x80; }));
}

}  // namespace

std::string align_columns(const std::vector<std::vector<std::string>>& rows,
                          const std::vector<bool>& right_aligned) {
  std::vector<std::size_t> widths(right_aligned.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - width(row[i]), ' ');
      const bool last = i + 1 == row.size();
      text += right_aligned[i] ? blanks + row[i] : row[i] + (last ? "" : blanks);
      text += last ? "\n" : "  ";
    }
  }
  return text;
}

}  // namespace tandem::internal
