#include "base/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/file_descriptor.h"
#include "tandem/error.h"

namespace tandem::internal {

ByteSource file_source(const std::string& path) {
  const auto file = std::make_shared<const FileDescriptor>(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto refuse = [path] {
    return NotFound(fmt::format("cannot read \"{}\": {}", path, std::strerror(errno)));
  };
  if (!*file) throw refuse();
  posix_fadvise(file->get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return [file, refuse](char* data, std::size_t bytes) {
    for (;;) {
      const ssize_t got = read(file->get(), data, bytes);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) throw refuse();
    }
  };
}

}  // namespace tandem::internal
