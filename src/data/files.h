#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "tandem/error.h"

namespace tandem::internal {

// Throws NotFound, with the system's reason, where it cannot be told whether there is such a file.
inline bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) {
    throw NotFound(fmt::format("{}: {}", path.string(), error.message()));
  }
  return std::filesystem::is_regular_file(status);
}

}  // namespace tandem::internal
