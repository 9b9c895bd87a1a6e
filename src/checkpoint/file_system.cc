#include "checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/file_descriptor.h"
#include "base/hmac.h"

namespace tandem::internal {
namespace {

ErrorCode code_of(int reason) {
  switch (reason) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ENOTEMPTY:
    case ELOOP:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENAMETOOLONG:
      return ErrorCode::kNotFound;
    default:
      return ErrorCode::kInternal;
  }
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  void append(std::span<const Bytes> pieces) override {
    std::array<iovec, 64> parts;
    std::size_t skip = 0;  // of the first piece, written already
    while (!pieces.empty()) {
      std::size_t count = 0;
      for (; count < parts.size() && count < pieces.size(); ++count) {
        const Bytes piece = count == 0 ? pieces[0].subspan(skip) : pieces[count];
        parts[count] = {const_cast<std::byte*>(piece.data()), piece.size()};
      }
      const ssize_t n = writev(file_.get(), parts.data(), static_cast<int>(count));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw FileError("write", path_, errno);
      for (skip += static_cast<std::size_t>(n); !pieces.empty() && skip >= pieces[0].size();) {
        skip -= pieces[0].size();
        pieces = pieces.subspan(1);
      }
    }
  }

  void sync() override {
    if (fdatasync(file_.get()) != 0) throw FileError("sync", path_, errno);
  }

 private:
  FileDescriptor file_;
  std::string path_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(FileDescriptor file, std::uint64_t size, std::string path)
      : file_(std::move(file)), size_(size), path_(std::move(path)) {}

  std::uint64_t size() const override { return size_; }

  std::size_t read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n =
          pread(file_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw FileError("read", path_, errno);
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

  void forget_cached() const override { posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED); }

 private:
  FileDescriptor file_;
  std::uint64_t size_;
  std::string path_;
};

FolderEntry::Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FolderEntry::Kind::kFile;
  return S_ISDIR(mode) ? FolderEntry::Kind::kFolder : FolderEntry::Kind::kOther;
}

FolderEntry::Kind kind_of(int folder, const dirent& entry) {
  switch (entry.d_type) {
    case DT_REG:
      return FolderEntry::Kind::kFile;
    case DT_DIR:
      return FolderEntry::Kind::kFolder;
    case DT_UNKNOWN: {  // not every file system tells
      struct stat status {};
      if (fstatat(folder, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) == 0) return kind_of(status.st_mode);
      return FolderEntry::Kind::kOther;
    }
    default:
      return FolderEntry::Kind::kOther;
  }
}

}  // namespace

FileError::FileError(const char* what, const std::string& path, int reason)
    : Error(code_of(reason), fmt::format("cannot {} \"{}\": {}", what, path, std::strerror(reason))),
      reason_(reason) {}

std::unique_ptr<WritableFile> PosixFileSystem::create_file(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file) throw FileError("create", path, errno);
  return std::make_unique<PosixWritableFile>(std::move(file), path);
}

std::unique_ptr<ReadableFile> PosixFileSystem::open_file(const std::string& path) {
  // O_NONBLOCK: a FIFO must be refused, not waited for.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) throw FileError("open", path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw FileError("open", path, errno);
  if (S_ISDIR(status.st_mode)) throw FileError("open", path, EISDIR);
  if (!S_ISREG(status.st_mode)) {
    throw InvalidArgument(fmt::format("\"{}\" is not a regular file", path));
  }
  return std::make_unique<PosixReadableFile>(std::move(file), static_cast<std::uint64_t>(status.st_size),
                                             path);
}

void PosixFileSystem::create_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) != 0) throw FileError("create the folder", path, errno);
}

void PosixFileSystem::sync_folder(const std::string& path) {
  const FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw FileError("open the folder", path, errno);
  // EINVAL: a file system that has no such thing, as some in user space.
  if (fsync(folder.get()) != 0 && errno != EINVAL) throw FileError("sync the folder", path, errno);
}

void PosixFileSystem::rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw FileError("rename to", to, errno);
}

bool PosixFileSystem::exchange(const std::string& a, const std::string& b) {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  throw FileError("rename to", b, errno);
}

void PosixFileSystem::remove_file(const std::string& path) {
  if (unlink(path.c_str()) != 0) throw FileError("remove", path, errno);
}

void PosixFileSystem::remove_folder(const std::string& path) {
  if (rmdir(path.c_str()) != 0) throw FileError("remove the folder", path, errno);
}

std::vector<FolderEntry> PosixFileSystem::list(const std::string& path) {
  struct Close {
    void operator()(DIR* folder) const { closedir(folder); }
  };
  const std::unique_ptr<DIR, Close> folder(opendir(path.c_str()));
  if (!folder) throw FileError("list", path, errno);
  std::vector<FolderEntry> entries;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(folder.get());
    if (!entry && errno != 0) throw FileError("list", path, errno);
    if (!entry) return entries;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") entries.push_back({name, kind_of(dirfd(folder.get()), *entry)});
  }
}

void create_folders(FileSystem& files, const std::string& path) {
  try {
    files.create_folder(path);
  } catch (const FileError& error) {
    if (error.reason() == EEXIST) return;
    const std::string parent = parent_folder(path);
    if (error.reason() != ENOENT || parent == path || parent == ".") throw;
    create_folders(files, parent);
    files.create_folder(path);
  }
  files.sync_folder(parent_folder(path));
}

void remove_tree(FileSystem& files, const FolderEntry& entry, const std::string& path) {
  if (entry.kind != FolderEntry::Kind::kFolder) return files.remove_file(path);
  for (const FolderEntry& inside : files.list(path)) remove_tree(files, inside, path + "/" + inside.name);
  files.remove_folder(path);
}

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string read_whole_file(FileSystem& files, const std::string& path, std::size_t most) {
  const auto file = files.open_file(path);
  if (file->size() > most) {
    throw DataLoss(fmt::format("\"{}\" has {} bytes: expected at most {}", path, file->size(), most));
  }
  std::string text(file->size(), '\0');
  const std::size_t bytes = file->read_at(0, std::as_writable_bytes(std::span(text)));
  if (bytes != text.size()) {
    throw DataLoss(fmt::format("\"{}\" ends at byte {}: expected {}", path, bytes, text.size()));
  }
  return text;
}

std::string random_suffix() {
  std::array<std::uint8_t, 8> bytes{};
  random_bytes(bytes.data(), bytes.size());
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace tandem::internal
