#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::internal {

// A tensor has 64 bits of a text (base/fingerprint.h), from which the text cannot be told. For messages about
// a label that nobody knows, some of those that were read are kept here: the first few thousand that are not
// long, of the whole process, because what carries labels through a program is tensors alone. From any
// thread.
void note_text(std::int64_t fingerprint, std::string_view text);

// Nothing for a text that was not noted.
std::optional<std::string> noted_text(std::int64_t fingerprint);

}  // namespace tandem::internal
