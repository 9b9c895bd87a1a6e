#include "data/idx_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "data/files.h"
#include "tandem/error.h"

namespace fs = std::filesystem;

namespace tandem::internal {
namespace {

// Of one dimension: a larger one is a damaged header.
constexpr std::int64_t kMaxSize = 1 << 24;
constexpr std::int64_t kChunk = 1 << 20;

// A file, gzipped or not (zlib tells by its first bytes), read from begin to end.
class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path), file_(gzopen(path.c_str(), "rb"), gzclose) {
    if (!file_) throw NotFound(fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno)));
  }

  std::int64_t offset() const { return offset_; }

  // Up to n bytes: fewer at the end.
  std::int64_t read(std::uint8_t* out, std::int64_t n, std::string_view expected) {
    const int got = gzread(file_.get(), out, static_cast<unsigned>(n));
    if (got > 0) offset_ += got;
    if (got < n) check(expected);
    return std::max(got, 0);
  }

  // Big-endian.
  std::uint32_t read_number(std::string_view expected) {
    std::uint8_t bytes[4];
    if (read(bytes, 4, expected) < 4) lose(offset_, "the file ends", expected);
    return std::uint32_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
  }

  [[noreturn]] void lose(std::int64_t offset, std::string_view what, std::string_view expected) const {
    throw DataLoss(fmt::format("{}: {} at byte {}{}: expected {}", path_.string(), what, offset,
                               gzdirect(file_.get()) ? "" : " (unpacked)", expected));
  }

 private:
  // Called at a short read: a cut-off gzip file gives what there is first, and is found out then.
  void check(std::string_view expected) const {
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    lose(offset_, code == Z_BUF_ERROR ? "the gzip file is cut off" : "the gzip file is damaged", expected);
  }

  fs::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  std::int64_t offset_ = 0;
};

fs::path find_file(const fs::path& dir, const std::string& name) {
  for (const fs::path& path : {dir / name, dir / (name + ".gz")}) {
    if (is_file(path)) return path;
  }
  throw NotFound(fmt::format("{}: no such file, nor {}.gz; expected an idx file of the MNIST format",
                             (dir / name).string(), name));
}

}  // namespace

IdxFile read_idx_file(const fs::path& dir, const std::string& name, int dimensions) {
  IdxFile file{.path = find_file(dir, name)};
  Reader reader(file.path);

  const std::uint32_t expected_magic = 0x800 + dimensions;  // 8: unsigned bytes
  const std::string kind =
      fmt::format("{:#010x}, an idx file of bytes with {} dimensions", expected_magic, dimensions);
  const std::uint32_t magic = reader.read_number(kind);
  if (magic != expected_magic) reader.lose(0, fmt::format("{:#010x}", magic), kind);

  std::int64_t bytes = 1;
  for (int i = 0; i < dimensions; ++i) {
    const std::string range = fmt::format("the size of dimension {}, 1 to {}", i, kMaxSize);
    const std::int64_t offset = reader.offset();
    const std::int64_t size = reader.read_number(range);
    if (size < 1 || size > kMaxSize || __builtin_mul_overflow(bytes, size, &bytes)) {
      reader.lose(offset, fmt::format("{}", size), range);
    }
    file.sizes.push_back(size);
  }

  const std::int64_t header = reader.offset();
  const std::string length = fmt::format("{} bytes, {} of header and {} of values", header + bytes, header,
                                         fmt::join(file.sizes, "x"));
  // Grows with what is there, not with what a damaged header promises. The last read asks for one byte more
  // than there should be: it shows a file that goes on, and makes zlib look whether a gzip file has its end.
  while (std::ssize(file.values) <= bytes) {
    const std::int64_t had = std::ssize(file.values);
    const std::int64_t wanted = bytes - had > kChunk ? kChunk : bytes - had + 1;
    file.values.resize(had + wanted);
    const std::int64_t got = reader.read(file.values.data() + had, wanted, length);
    file.values.resize(had + got);
    if (got < wanted) break;
  }
  if (std::ssize(file.values) < bytes) reader.lose(reader.offset(), "the file ends", length);
  if (std::ssize(file.values) > bytes) reader.lose(header + bytes, "the file goes on", length);
  return file;
}

}  // namespace tandem::internal
