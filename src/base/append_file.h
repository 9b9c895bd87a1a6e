#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace tandem::internal {

// What to do with a file that has the name already.
enum class Existing { kRefuse, kTruncate, kKeep };

// A file that only grows, by whole pieces, and that nobody else writes.
class AppendFile {
 public:
  // Throws NotFound with the system's reason.
  AppendFile(const std::string& path, Existing existing);

  // All of it, or nothing: what a full disk has taken of a piece is cut off again, and it can be tried once
  // more. Throws NotFound with the system's reason; if not even the cutting succeeds, so do all later calls,
  // because the file then ends in a fragment. The bytes are with the system: they outlive this process, but
  // not a power cut.
  void append(std::string_view bytes);

  // Whether the file ends in a fragment: another one must be opened.
  bool broken() const { return broken_; }
  // False once somebody has removed the file: what is appended then goes nowhere.
  bool still_there() const;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }

 private:
  std::string path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
  bool broken_ = false;
};

}  // namespace tandem::internal
