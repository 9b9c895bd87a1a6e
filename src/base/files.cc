#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/file_descriptor.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

FileDescriptor open_file(const std::string& path, int flags, mode_t mode = 0) {
  return FileDescriptor(open(path.c_str(), flags | O_CLOEXEC, mode));
}

bool write_all(const FileDescriptor& file, const std::string& contents) {
  for (std::size_t done = 0; done < contents.size();) {
    const ssize_t n = write(file.get(), contents.data() + done, contents.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

// The new contents beside the file, under a name that goes away with this object.
class Beside {
 public:
  explicit Beside(const std::string& path) : path_(path), beside_(fmt::format("{}.tmp-{}", path, getpid())) {}
  ~Beside() { unlink(beside_.c_str()); }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  const char* name() const { return beside_.c_str(); }

  // `exact_mode`: these permissions, whatever the umask.
  void write(const std::string& contents, std::optional<mode_t> exact_mode) const {
    unlink(name());  // of a process that had our number and died here; its permissions are not ours
    const auto file = open_file(beside_, O_WRONLY | O_CREAT | O_EXCL, exact_mode.value_or(0666));
    if (!file) throw refuse("open");
    if (exact_mode && fchmod(file.get(), *exact_mode) != 0) throw refuse("chmod");
    if (!write_all(file, contents)) throw refuse("write");
    if (fsync(file.get()) != 0) throw refuse("fsync");
  }

  NotFound refuse(const char* what) const {
    return NotFound(fmt::format("cannot write \"{}\": {}: {}", path_, what, std::strerror(errno)));
  }

  void sync_folder() const {
    const std::string folder = std::filesystem::path(path_).parent_path().string();
    const auto parent = open_file(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
    if (parent) fsync(parent.get());
  }

 private:
  std::string path_;
  std::string beside_;
};

}  // namespace

void replace_file(const std::string& path, const std::string& contents) {
  const Beside beside(path);
  beside.write(contents, std::nullopt);
  if (std::rename(beside.name(), path.c_str()) != 0) throw beside.refuse("rename");
  beside.sync_folder();
}

void create_file(const std::string& path, const std::string& contents, mode_t mode) {
  const Beside beside(path);
  beside.write(contents, mode);
  // A link never replaces what has the name, which rename() would.
  if (link(beside.name(), path.c_str()) != 0) {
    if (errno == EEXIST) throw InvalidArgument(fmt::format("\"{}\" exists already", path));
    throw beside.refuse("link");
  }
  beside.sync_folder();
}

}  // namespace tandem::internal
