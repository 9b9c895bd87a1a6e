#include "base/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"
#include "base/files.h"
#include "base/hmac.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr std::size_t kLargestSecret = 64 * 1024;
constexpr std::size_t kShortestToken = 16;
constexpr std::size_t kLongestToken = 4096;

FileDescriptor open_secret(const std::string& path) {
  // O_NONBLOCK: a FIFO must be refused, not waited for.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (file) return file;
  if (errno == ELOOP) {
    throw InvalidArgument(
        fmt::format("\"{}\" is a symbolic link: a secret is read from a regular file only; name the file "
                    "itself",
                    path));
  }
  throw NotFound(fmt::format("cannot read \"{}\": {}", path, std::strerror(errno)));
}

// Looks at the open file, not at its name, which could mean another file by now.
void check_owner_and_mode(const FileDescriptor& file, const std::string& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0)
    throw NotFound(fmt::format("cannot read \"{}\": {}", path, std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) {
    throw InvalidArgument(
        fmt::format("\"{}\" is not a regular file: a secret is read from a regular file only", path));
  }
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    throw InvalidArgument(
        fmt::format("\"{}\" belongs to user {}, who could change this secret: it must be yours or root's "
                    "(sudo chown {} '{}')",
                    path, status.st_uid, geteuid(), path));
  }
  const mode_t mode = status.st_mode & 07777;
  if ((mode & ~kOwnerOnly) != 0) {
    throw InvalidArgument(
        fmt::format("\"{}\" has mode {:04o}: a secret must be readable by its owner alone (chmod 600 '{}')",
                    path, mode, path));
  }
}

}  // namespace

std::string read_secret(const std::string& path) {
  const FileDescriptor file = open_secret(path);
  check_owner_and_mode(file, path);
  std::string secret;
  std::array<char, 4096> block{};
  while (true) {
    const ssize_t n = read(file.get(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw NotFound(fmt::format("cannot read \"{}\": {}", path, std::strerror(errno)));
    if (n == 0) return secret;
    secret.append(block.data(), static_cast<std::size_t>(n));
    if (secret.size() > kLargestSecret) {
      throw InvalidArgument(
          fmt::format("\"{}\" has more than {} bytes: this is not a key or a token", path, kLargestSecret));
    }
  }
}

std::string read_token(const std::string& path) {
  std::string token = read_secret(path);
  if (token.ends_with('\n')) token.pop_back();
  if (token.ends_with('\r')) token.pop_back();
  if (token.size() < kShortestToken || token.size() > kLongestToken) {
    throw InvalidArgument(
        fmt::format("the token in \"{}\" has {} bytes: expected {} to {} (tandem certs token FILE makes a "
                    "new one)",
                    path, token.size(), kShortestToken, kLongestToken));
  }
  return token;
}

std::string make_token() {
  std::array<unsigned char, 32> bytes{};
  random_bytes(bytes.data(), bytes.size());
  std::array<unsigned char, 45> text{};  // 44 and a 0
  const int length = EVP_EncodeBlock(text.data(), bytes.data(), bytes.size());
  return {text.data(), text.data() + length};
}

void write_secret(const std::string& path, const std::string& secret) {
  create_file(path, secret, kOwnerOnly);
}

}  // namespace tandem::internal
