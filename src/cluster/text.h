#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::internal {

// For messages: in double quotes, on one line whatever the text holds, and cut if it is long.
std::string quote(std::string_view text);

// The candidate that `text` was probably meant to be (a slip or two of the keyboard, or of case); it may be
// the same.
std::optional<std::string> closest(std::string_view text, const std::vector<std::string>& candidates);

// " (did you mean \"worker\"?)", or nothing.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

// Decimal digits with an optional minus, nothing else, and in the range of an int.
std::optional<int> parse_int(std::string_view text);

// The pieces between commas, without the blanks around them. Empty pieces are kept.
std::vector<std::string> split_list(std::string_view text);

// Whether this is UTF-8 without control characters, blanks and invisible characters: two names that look
// alike on a terminal should be alike.
bool is_printable_name(std::string_view text);

// The same, but blanks are allowed: a path or a title.
bool is_printable_text(std::string_view text);

}  // namespace tandem::internal
