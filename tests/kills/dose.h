#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace tandem::testing_support {

// A tenth of the full dose, which `tests/soak kills` gives.
inline int dose(const char* variable, int usual) {
  const char* wanted = std::getenv(variable);
  return wanted ? std::atoi(wanted) : usual;
}

// The 99th percentile of some delays in milliseconds, having printed the median and the longest too.
inline std::int64_t p99_of(const char* what, std::vector<std::int64_t> delays) {
  std::ranges::sort(delays);
  const auto p99 = delays[(delays.size() - 1) * 99 / 100];
  fmt::print("{}: named after {} ms (median), {} ms (p99), {} ms (longest of {})\n", what,
             delays[delays.size() / 2], p99, delays.back(), delays.size());
  return p99;
}

}  // namespace tandem::testing_support
