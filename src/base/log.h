#pragma once

#include <fmt/format.h>

#include <string>

namespace tandem::internal {

enum class LogLevel { kInfo, kWarning };

void log_line(LogLevel level, const std::string& line);

// Library code does not print: it logs here, one line at a time, to standard error.
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tandem::internal
