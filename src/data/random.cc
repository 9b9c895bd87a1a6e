#include "base/random.h"

#include <fmt/format.h>

#include "tandem/error.h"
#include "tandem/example_random.h"

namespace tandem {

using internal::kCounterStep;
using internal::mix;

ExampleRandom::ExampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  state_ = mix(seed + kCounterStep);
  state_ = mix(state_ + static_cast<std::uint64_t>(epoch) + kCounterStep);
  state_ = mix(state_ + static_cast<std::uint64_t>(index) + kCounterStep);
}

std::uint64_t ExampleRandom::bits() {
  state_ += kCounterStep;
  return mix(state_);
}

std::int64_t ExampleRandom::uniform_int(std::int64_t n) {
  if (n <= 0) throw InvalidArgument(fmt::format("uniform_int({}): expected at least 1", n));
  // The upper half of bits * n: no division, and a bias of n / 2^64 that nobody can see.
  return static_cast<std::int64_t>((static_cast<unsigned __int128>(bits()) * static_cast<std::uint64_t>(n)) >>
                                   64);
}

double ExampleRandom::uniform() {
  return static_cast<double>(bits() >> 11) * 0x1p-53;
}

}  // namespace tandem
