#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/byte_source.h"

struct z_stream_s;

namespace tandem::internal {

enum class Compression { kNone, kGzip, kZlib };

// By TensorFlow's names: "" or "NONE", "GZIP", "ZLIB". Throws InvalidArgument for another.
Compression compression_of(std::string_view name);

// The bytes of `packed`, unpacked as they are asked for; `name` is what messages call it. Takes some 100 KB,
// however much comes out. Several gzip files in one are read one after the other, as gzip itself does. Throws
// DataLoss for what is damaged, cut off, or something else.
ByteSource unpacked(std::string name, ByteSource packed, Compression compression);

// Packs bytes as they come. Not thread-safe.
class Packer {
 public:
  explicit Packer(Compression compression);
  Packer(Packer&&) noexcept;
  Packer& operator=(Packer&&) noexcept;
  ~Packer();

  // Adds what is ready to `out`; the rest comes later.
  void pack(std::string_view bytes, std::string& out);
  // The rest. Nothing may follow.
  void finish(std::string& out);

 private:
  void run(std::string_view bytes, int flush, std::string& out);

  struct End {
    void operator()(z_stream_s* stream) const;
  };
  std::unique_ptr<z_stream_s, End> stream_;  // empty: as they are
};

}  // namespace tandem::internal
