#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "base/file_descriptor.h"
#include "fuzz/require.h"
#include "support/temp_folder.h"

namespace tandem::fuzz {

// A file for readers that take nothing else, written anew for each input. It lies in memory, under a link
// that has its name: a disk would take a hundred times as long as the reader.
class OneFile {
 public:
  explicit OneFile(std::string name)
      : name_(std::move(name)), file_(memfd_create(name_.c_str(), MFD_CLOEXEC)) {
    if (!file_) throw std::runtime_error("there is no file in memory");
    std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(file_.get()), folder_ / name_);
  }

  const std::string& folder() const { return folder_.path(); }
  const std::string& name() const { return name_; }

  void write(const void* data, std::size_t size) const {
    require(
        ftruncate(file_.get(), 0) == 0 && pwrite(file_.get(), data, size, 0) == static_cast<ssize_t>(size),
        "the file can be written");
  }

 private:
  testing_support::TempFolder folder_;
  std::string name_;
  internal::FileDescriptor file_;
};

}  // namespace tandem::fuzz
