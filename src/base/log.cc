#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace tandem::internal {

void log_line(LogLevel level, const std::string& line) {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = spdlog::stderr_color_mt("tandem");
    made->set_pattern("%H:%M:%S.%e %^%L%$ %v");
    return made;
  }();
  logger->log(level == LogLevel::kInfo ? spdlog::level::info : spdlog::level::warn, line);
}

}  // namespace tandem::internal
