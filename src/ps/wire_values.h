#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ps/wire.h"

namespace tandem::internal::ps {

// The type in which values of a variable travel; nothing if gradients of such a dtype do not.
std::optional<WireType> wire_type_of(const std::string& dtype);

bool all_finite(WireType type, std::span<const std::byte> values);
void to_bfloat16(std::span<const std::byte> floats, std::span<std::byte> halves);
void from_bfloat16(std::span<const std::byte> halves, std::span<std::byte> floats);

// Returns the CRC-32C; one pass over memory.
std::uint32_t copy_with_crc(std::span<const std::byte> from, std::byte* to);

}  // namespace tandem::internal::ps
