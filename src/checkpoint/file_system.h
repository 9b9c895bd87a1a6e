#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/error.h"

namespace tandem::internal {

using Bytes = std::span<const std::byte>;

// A call to the system that failed. NotFound's code where another path or other permissions would help.
class FileError : public Error {
 public:
  // `what`, as in "cannot <what> \"<path>\": No space left on device".
  FileError(const char* what, const std::string& path, int reason);

  // errno.
  int reason() const noexcept { return reason_; }

 private:
  int reason_;
};

class WritableFile {
 public:
  // Closes. What was not synced may be gone after a crash of the machine.
  virtual ~WritableFile() = default;

  // Writes all of the pieces, one after the other, at the end.
  virtual void append(std::span<const Bytes> pieces) = 0;
  // Returns when what was appended will survive a crash; the file's name is its folder's business.
  virtual void sync() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  virtual std::uint64_t size() const = 0;
  // How many bytes from `offset` on came; fewer than asked for only at the end of the file. Any thread.
  virtual std::size_t read_at(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
  // From here on bytes come from the disk, not from memory that the system kept; where it can do that.
  virtual void forget_cached() const = 0;
};

struct FolderEntry {
  enum class Kind { kFile, kFolder, kOther };
  std::string name;
  Kind kind;  // of the entry itself: a symbolic link is kOther
};

// The calls that a save makes: few, so that a disk in memory can stand in for the real one and a test can
// stop after each of them. Paths have slashes. Everything throws FileError; any thread.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new file; it is an error if the name is taken.
  virtual std::unique_ptr<WritableFile> create_file(const std::string& path) = 0;
  // A regular file; the last part of the path is not followed if it is a symbolic link.
  virtual std::unique_ptr<ReadableFile> open_file(const std::string& path) = 0;
  virtual void create_folder(const std::string& path) = 0;
  // Returns when the names in the folder, new, changed and gone, will survive a crash.
  virtual void sync_folder(const std::string& path) = 0;
  // A file replaces a file of the new name; a folder only an empty one. Both in one folder.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Each gets the other's name, in one step. False where the file system cannot do that.
  virtual bool exchange(const std::string& a, const std::string& b) = 0;
  virtual void remove_file(const std::string& path) = 0;
  // An empty one.
  virtual void remove_folder(const std::string& path) = 0;
  // In any order, without "." and "..".
  virtual std::vector<FolderEntry> list(const std::string& path) = 0;
};

// The machine's own.
class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create_file(const std::string& path) override;
  std::unique_ptr<ReadableFile> open_file(const std::string& path) override;
  void create_folder(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  bool exchange(const std::string& a, const std::string& b) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;
  std::vector<FolderEntry> list(const std::string& path) override;
};

// With the folders above it, their names synced. Nothing if it is there.
void create_folders(FileSystem& files, const std::string& path);

// A file or a folder with all that is in it; symbolic links are removed, not followed.
void remove_tree(FileSystem& files, const FolderEntry& entry, const std::string& path);

// The folder that a path is in: "." if it names none.
std::string parent_folder(const std::string& path);

// The whole file. Throws DataLoss if it has more than `most` bytes or changes while it is read.
std::string read_whole_file(FileSystem& files, const std::string& path, std::size_t most);

// Sixteen letters and digits that nobody has used before, for the names of temporaries.
std::string random_suffix();

}  // namespace tandem::internal
