#include "base/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

int flags_for(Existing existing) {
  switch (existing) {
    case Existing::kRefuse:
      return O_EXCL;
    case Existing::kTruncate:
      return O_TRUNC;
    case Existing::kKeep:
      break;
  }
  return 0;
}

NotFound refuse(const std::string& path, const char* what, const char* why) {
  return NotFound(fmt::format("cannot write \"{}\": {}: {}", path, what, why));
}

}  // namespace

AppendFile::AppendFile(const std::string& path, Existing existing)
    : path_(path),
      file_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags_for(existing), 0666)) {
  if (!file_) throw refuse(path_, "open", std::strerror(errno));
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) throw refuse(path_, "stat", std::strerror(errno));
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void AppendFile::append(std::string_view bytes) {
  if (broken_) throw refuse(path_, "write", "the file ends in a fragment of an earlier one");
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int reason = n < 0 ? errno : ENOSPC;
      broken_ = done > 0 && ftruncate(file_.get(), static_cast<off_t>(size_)) != 0;
      throw refuse(path_, "write", std::strerror(reason));
    }
    done += static_cast<std::size_t>(n);
  }
  size_ += bytes.size();
}

bool AppendFile::still_there() const {
  struct stat status {};
  return fstat(file_.get(), &status) == 0 && status.st_nlink > 0;
}

}  // namespace tandem::internal
