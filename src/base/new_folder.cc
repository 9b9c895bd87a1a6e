#include "base/new_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/file_descriptor.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

NotFound refuse(const std::string& path) {
  return NotFound(fmt::format("cannot write the folder \"{}\": {}", path, std::strerror(errno)));
}

void sync_parent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const FileDescriptor folder(
      open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) fsync(folder.get());
}

}  // namespace

NewFolder::NewFolder(const std::string& final_path)
    : final_path_(final_path), path_(final_path + ".tmp-XXXXXX") {
  if (!mkdtemp(path_.data())) throw refuse(final_path);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void NewFolder::put_in_place() {
  if (std::rename(path_.c_str(), final_path_.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
      throw InvalidArgument(fmt::format("\"{}\" exists already", final_path_));
    throw refuse(final_path_);
  }
  sync_parent(final_path_);
}

void NewFolder::replace() {
  // After an exchange the old folder has our name, and goes away with this object.
  if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final_path_.c_str(), RENAME_EXCHANGE) == 0) {
    sync_parent(final_path_);
    return;
  }
  if (errno == ENOENT) return put_in_place();
  if (errno != EINVAL && errno != ENOSYS) throw refuse(final_path_);
  // A file system that cannot exchange, e.g. NFS: for a moment there is no folder.
  const std::string old = path_ + ".old";
  if (std::rename(final_path_.c_str(), old.c_str()) != 0) throw refuse(final_path_);
  if (std::rename(path_.c_str(), final_path_.c_str()) != 0) {
    const NotFound error = refuse(final_path_);
    std::rename(old.c_str(), final_path_.c_str());
    throw error;
  }
  sync_parent(final_path_);
  std::error_code ignored;
  std::filesystem::remove_all(old, ignored);
}

}  // namespace tandem::internal
