#pragma once

#include <cstdio>
#include <cstdlib>

namespace tandem::fuzz {

// A property that holds for every input. If it does not, the run ends as a crash does, and can be repeated.
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "this does not hold: %s\n", property);
  std::abort();
}

}  // namespace tandem::fuzz
