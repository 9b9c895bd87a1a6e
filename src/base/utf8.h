#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::internal {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

// The first one of `text`, which must not be empty. Neither overlong forms nor surrogates are UTF-8.
CodePoint decode_utf8(std::string_view text);

bool is_utf8(std::string_view text);

// The text itself if it is UTF-8; otherwise with U+FFFD, the replacement character, in place of every byte
// that is not.
std::string to_utf8(std::string_view text);

// The same, cut to `longest` bytes and with spaces for control characters: fit for a message.
std::string one_line(std::string_view text, std::size_t longest);

}  // namespace tandem::internal
