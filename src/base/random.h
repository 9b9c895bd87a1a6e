#pragma once

#include <cstdint>

namespace tandem::internal {

// The step of the counter from one number to the next: odd, and its bits look random (2^64 / golden ratio).
inline constexpr std::uint64_t kCounterStep = 0x9e3779b97f4a7c15;

// Spreads every bit of x over all of the result (the finaliser of splitmix64). The same on every machine and
// with every standard library, which std::shuffle and the std distributions are not.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A seed for a stream of its own, unlike those of other streams of the same seed.
constexpr std::uint64_t seed_of_stream(std::uint64_t seed, std::uint64_t stream) {
  return mix(mix(seed + kCounterStep) + stream);
}

}  // namespace tandem::internal
