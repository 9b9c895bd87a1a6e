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

}  // namespace tandem::testing_support
