#include "base/compression.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::size_t kPiece = 64 << 10;
constexpr std::size_t kMostAtOnce = std::numeric_limits<uInt>::max();

// What zlib calls the format: the size of its window, and 16 for gzip.
int window_bits(Compression compression) {
  return MAX_WBITS + (compression == Compression::kGzip ? 16 : 0);
}

class Unpacker {
 public:
  Unpacker(std::string name, ByteSource packed, Compression compression)
      : name_(std::move(name)),
        packed_(std::move(packed)),
        is_gzip_(compression == Compression::kGzip),
        input_(kPiece) {
    if (inflateInit2(&stream_, window_bits(compression)) != Z_OK) throw std::bad_alloc();
  }
  ~Unpacker() { inflateEnd(&stream_); }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  std::size_t read(char* data, std::size_t bytes) {
    if (is_damaged_) lose("is damaged");
    const std::size_t wanted = std::min(bytes, kMostAtOnce);
    stream_.next_out = reinterpret_cast<Bytef*>(data);
    stream_.avail_out = static_cast<uInt>(wanted);
    while (stream_.avail_out == wanted && wanted > 0) {
      if (stream_.avail_in == 0 && !refill()) {
        if (!inside_) return 0;
        lose("is cut off");
      }
      if (ended_) {
        if (!is_gzip_) lose("goes on after its end");
        inflateReset(&stream_);
        ended_ = false;
      }
      inside_ = true;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        ended_ = true;
        inside_ = false;
      } else if (result == Z_MEM_ERROR) {
        throw std::bad_alloc();
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        is_damaged_ = true;
        if (stream_.avail_out < wanted) break;  // what came out before goes first
        lose(has_begun_ ? "is damaged" : "is no such file");
      }
    }
    has_begun_ = true;
    return wanted - stream_.avail_out;
  }

 private:
  bool refill() {
    const std::size_t got = packed_(input_.data(), input_.size());
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(got);
    return got > 0;
  }

  [[noreturn]] void lose(const char* what) const {
    throw DataLoss(fmt::format("\"{}\", read as {}, {}{}", name_, is_gzip_ ? "GZIP" : "ZLIB", what,
                               stream_.msg ? fmt::format(" ({})", stream_.msg) : ""));
  }

  std::string name_;
  ByteSource packed_;
  bool is_gzip_;
  std::vector<char> input_;
  z_stream stream_{};
  bool has_begun_ = false;
  bool is_damaged_ = false;
  bool inside_ = false;  // of a stream that has begun and not ended
  bool ended_ = false;
};

}  // namespace

Compression compression_of(std::string_view name) {
  if (name.empty() || name == "NONE") return Compression::kNone;
  if (name == "GZIP") return Compression::kGzip;
  if (name == "ZLIB") return Compression::kZlib;
  throw InvalidArgument(fmt::format("compression \"{}\": expected NONE, GZIP or ZLIB", name));
}

ByteSource unpacked(std::string name, ByteSource packed, Compression compression) {
  if (compression == Compression::kNone) return packed;
  const auto unpacker = std::make_shared<Unpacker>(std::move(name), std::move(packed), compression);
  return [unpacker](char* data, std::size_t bytes) { return unpacker->read(data, bytes); };
}

Packer::Packer(Compression compression) {
  if (compression == Compression::kNone) return;
  auto stream = std::make_unique<z_stream>();
  constexpr int kMemory = 8;  // zlib's default
  if (deflateInit2(stream.get(), Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits(compression), kMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  stream_.reset(stream.release());
}

Packer::Packer(Packer&&) noexcept = default;
Packer& Packer::operator=(Packer&&) noexcept = default;
Packer::~Packer() = default;

void Packer::End::operator()(z_stream_s* stream) const {
  deflateEnd(stream);
  delete stream;
}

void Packer::pack(std::string_view bytes, std::string& out) {
  if (!stream_) {
    out += bytes;
    return;
  }
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMostAtOnce))) {
    run(bytes.substr(0, kMostAtOnce), Z_NO_FLUSH, out);
  }
}

void Packer::finish(std::string& out) {
  if (stream_) run({}, Z_FINISH, out);
}

void Packer::run(std::string_view bytes, int flush, std::string& out) {
  stream_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream_->avail_in = static_cast<uInt>(bytes.size());
  do {
    const std::size_t had = out.size();
    out.resize(had + kPiece);
    stream_->next_out = reinterpret_cast<Bytef*>(out.data() + had);
    stream_->avail_out = kPiece;
    deflate(stream_.get(), flush);
    out.resize(had + kPiece - stream_->avail_out);
  } while (stream_->avail_out == 0);
}

}  // namespace tandem::internal
