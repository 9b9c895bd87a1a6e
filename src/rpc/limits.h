#pragma once

#include <chrono>
#include <cstddef>

namespace tandem::internal {

// What a stranger may cost a task.
inline constexpr int kLargestMessage = 1 << 20;
inline constexpr int kLargestMetadata = 8 << 10;
inline constexpr int kStreamsPerConnection = 64;
inline constexpr std::size_t kHalfOpenLinks = 64;  // that have not proved who they are
inline constexpr std::chrono::milliseconds kHandshakePatience{2000};
inline constexpr int kConnectPatienceMs = 2000;
inline constexpr std::size_t kMailboxSize = 10'000;

// What a task may offer.
inline constexpr std::size_t kOfferEntries = 32;
inline constexpr std::size_t kOfferKeyBytes = 64;
inline constexpr std::size_t kOfferBytes = 4096;  // keys and values together

}  // namespace tandem::internal
