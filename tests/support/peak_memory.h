#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace tandem::testing_support {

// Bytes, the most that the process ever had in memory.
inline std::uint64_t peak_memory(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string word; status >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

// From here on peak_memory() of this process is what it has from now on.
inline void forget_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

}  // namespace tandem::testing_support
