#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "tandem/error.h"

namespace tandem::examples {

// A new folder, which goes with what is in it.
class TemporaryFolder {
 public:
  // Throws NotFound if there is no place for one.
  explicit TemporaryFolder(const std::string& program)
      : path_((std::filesystem::temp_directory_path() / (program + "-XXXXXX")).string()) {
    if (!mkdtemp(path_.data())) throw NotFound("cannot make a temporary folder \"" + path_ + "\"");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tandem::examples
