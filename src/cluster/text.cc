#include "cluster/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>

#include "base/utf8.h"

namespace tandem::internal {
namespace {

constexpr std::size_t kLongestQuote = 80;

bool is_control(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

bool is_blank(std::uint32_t c) {
  return c == ' ' || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_printable(std::string_view text, bool blanks) {
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    if (c.bytes == 0 || is_control(c.value) || (!blanks && is_blank(c.value))) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// How many letters to insert, drop, change or swap with their neighbour, whatever their case.
std::size_t slips(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + changed});
      const bool swapped =
          i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::move(last);
    last = std::move(row);
  }
  return last.back();
}

}  // namespace

std::string quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    if (out.size() > kLongestQuote) {
      out += "...";
      break;
    }
    const CodePoint c = decode_utf8(text);
    const std::size_t bytes = std::max<std::size_t>(c.bytes, 1);
    if (c.bytes == 0 || is_control(c.value)) {
      for (const char byte : text.substr(0, bytes)) {
        out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(byte));
      }
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out + '"';
}

std::optional<std::string> closest(std::string_view text, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  std::size_t fewest = 0;
  for (const auto& candidate : candidates) {
    const std::size_t allowed = std::max<std::size_t>(candidate.size() / 3, 1);
    if (text.size() > candidate.size() + allowed) continue;
    const std::size_t needed = slips(text, candidate);
    // All letters changed is another word, not a slip: "a" is not "ps".
    if (needed > allowed || needed >= candidate.size()) continue;
    if (!best || needed < fewest) {
      best = candidate;
      fewest = needed;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates) {
  const auto meant = closest(text, candidates);
  return meant ? fmt::format(" (did you mean {}?)", quote(*meant)) : std::string();
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> pieces;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    more = comma != std::string_view::npos;
    std::string_view piece = text.substr(0, comma);
    while (!piece.empty() && piece.front() == ' ') piece.remove_prefix(1);
    while (!piece.empty() && piece.back() == ' ') piece.remove_suffix(1);
    pieces.emplace_back(piece);
    if (more) text.remove_prefix(comma + 1);
  }
  return pieces;
}

bool is_printable_name(std::string_view text) {
  return is_printable(text, false);
}

bool is_printable_text(std::string_view text) {
  return is_printable(text, true);
}

}  // namespace tandem::internal
