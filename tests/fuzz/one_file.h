#pragma once

#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>

#include "support/temp_folder.h"

namespace tandem::fuzz {

// A file for readers that take nothing else, written anew for each input.
class OneFile {
 public:
  explicit OneFile(std::string name) : name_(std::move(name)) {}

  const std::string& folder() const { return folder_.path(); }
  const std::string& name() const { return name_; }

  void write(const void* data, std::size_t size) const {
    std::ofstream file(folder_.file(name_), std::ios::binary | std::ios::trunc);
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    if (!file.flush()) throw std::runtime_error("cannot write " + folder_.file(name_));
  }

 private:
  testing_support::TempFolder folder_;
  std::string name_;
};

}  // namespace tandem::fuzz
