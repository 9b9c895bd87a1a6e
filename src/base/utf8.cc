#include "base/utf8.h"

#include <algorithm>

namespace tandem::internal {

CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t value = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {};
    value = (value << 6) | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (overlong || surrogate || value > 0x10ffff) return {};
  return {value, bytes};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    if (c.bytes == 0) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

std::string to_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    out += c.bytes == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, c.bytes);
    text.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
  }
  return out;
}

std::string one_line(std::string_view text, std::size_t longest) {
  std::string line = to_utf8(text.substr(0, longest));
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, ' ');
  // The replacement character has three bytes, and the cut may have hit one.
  while (line.size() > longest || !is_utf8(line)) line.pop_back();
  return line;
}

}  // namespace tandem::internal
