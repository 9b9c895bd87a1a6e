#include "cli/output.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace tandem::internal {
namespace {

constexpr std::size_t kEnough = 256 * 1024;
// What a pipe that poll() calls writable takes without blocking.
constexpr std::size_t kPiece = PIPE_BUF;

}  // namespace

bool Output::full() const {
  return queue_.size() - written_ >= kEnough;
}

bool Output::write_some() {
  const std::size_t piece = std::min(kPiece, queue_.size() - written_);
  const ssize_t n = write(descriptor_, queue_.data() + written_, piece);
  if (n < 0) {
    if (errno == EINTR || errno == EAGAIN) return true;
    const bool gone = errno == EPIPE;
    queue_.clear();
    written_ = 0;
    return !gone;
  }
  written_ += static_cast<std::size_t>(n);
  if (written_ == queue_.size() || written_ >= kEnough) {
    queue_.erase(0, written_);
    written_ = 0;
  }
  return true;
}

bool is_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) == 1 && kind && std::string_view(kind) != "dumb";
}

bool wants_colour(int descriptor) {
  const char* refusal = std::getenv("NO_COLOR");
  return is_terminal(descriptor) && (!refusal || !*refusal);
}

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace tandem::internal
