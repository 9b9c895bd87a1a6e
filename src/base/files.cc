#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  bool sync() const { return fsync(descriptor_) == 0; }
  bool write_all(const std::string& contents) const {
    for (std::size_t done = 0; done < contents.size();) {
      const ssize_t n = write(descriptor_, contents.data() + done, contents.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }

 private:
  int descriptor_;
};

}  // namespace

void replace_file(const std::string& path, const std::string& contents) {
  const std::string beside = fmt::format("{}.tmp-{}", path, getpid());
  const auto refuse = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    unlink(beside.c_str());
    return NotFound(fmt::format("cannot write \"{}\": {}: {}", path, what, reason));
  };
  {
    const File file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.is_open()) throw refuse("open");
    if (!file.write_all(contents)) throw refuse("write");
    if (!file.sync()) throw refuse("fsync");
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) throw refuse("rename");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const File parent(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  if (parent.is_open()) parent.sync();
}

}  // namespace tandem::internal
