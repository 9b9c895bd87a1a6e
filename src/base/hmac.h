#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tandem::internal {

using HmacTag = std::array<std::uint8_t, 32>;

// RFC 2104 with SHA-256: who does not know the key can neither make nor check the tag of a message.
HmacTag hmac_sha256(std::string_view key, std::string_view message);

// Takes as long for a wrong first byte as for a wrong last one, so that a tag cannot be found byte by byte.
// False if the lengths differ; those are no secret.
bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

// Fit for keys and nonces. Throws Error if the system has no randomness to give.
void random_bytes(void* data, std::size_t bytes);

}  // namespace tandem::internal
