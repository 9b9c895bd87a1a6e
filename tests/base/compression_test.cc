#include "base/compression.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;

// Hands out `bytes`, at most `step` at a time.
ByteSource source_of(std::string bytes, std::size_t step = 1 << 20) {
  return [bytes = std::move(bytes), step, done = std::size_t{0}](char* data, std::size_t wanted) mutable {
    const std::size_t got = std::min({wanted, step, bytes.size() - done});
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(done), got, data);
    done += got;
    return got;
  };
}

std::string read_all(const ByteSource& source, std::size_t piece = 1000) {
  std::string all;
  for (;;) {
    std::string part(piece, '\0');
    const std::size_t got = source(part.data(), piece);
    if (got == 0) return all;
    all.append(part, 0, got);
  }
}

std::string pack(const std::string& bytes, Compression compression) {
  Packer packer(compression);
  std::string packed;
  for (std::size_t at = 0; at < bytes.size(); at += 30'000) packer.pack(bytes.substr(at, 30'000), packed);
  packer.finish(packed);
  return packed;
}

std::string some_bytes() {
  std::string bytes;
  for (int i = 0; i < 40'000; ++i) bytes += std::to_string(i * 7919 % 10007);
  return bytes;
}

TEST(Compression, HasTheNamesOfTensorFlow) {
  EXPECT_EQ(compression_of(""), Compression::kNone);
  EXPECT_EQ(compression_of("NONE"), Compression::kNone);
  EXPECT_EQ(compression_of("GZIP"), Compression::kGzip);
  EXPECT_EQ(compression_of("ZLIB"), Compression::kZlib);
  EXPECT_EQ(message_of<InvalidArgument>([] { compression_of("gz"); }),
            "compression \"gz\": expected NONE, GZIP or ZLIB");
}

TEST(Compression, UnpacksWhatItPacked) {
  const std::string bytes = some_bytes();
  for (const Compression compression : {Compression::kNone, Compression::kGzip, Compression::kZlib}) {
    const std::string packed = pack(bytes, compression);
    if (compression != Compression::kNone) {
      EXPECT_LT(packed.size(), bytes.size() * 2 / 3);
    }
    for (const std::size_t step : {7, 100'000}) {
      EXPECT_EQ(read_all(unpacked("a", source_of(packed, step), compression), 999), bytes);
    }
    EXPECT_EQ(read_all(unpacked("a", source_of(pack("", compression)), compression)), "");
  }
}

TEST(Compression, ReadsGzipFilesOneAfterTheOther) {
  const std::string two = pack("one ", Compression::kGzip) + pack("two", Compression::kGzip);
  EXPECT_EQ(read_all(unpacked("a", source_of(two, 5), Compression::kGzip)), "one two");
  const std::string zlib = pack("one ", Compression::kZlib) + pack("two", Compression::kZlib);
  EXPECT_EQ(message_of<DataLoss>([&] { read_all(unpacked("a", source_of(zlib), Compression::kZlib)); }),
            "\"a\", read as ZLIB, goes on after its end");
}

TEST(Compression, NoticesWhereverAFileIsCutOff) {
  for (const Compression compression : {Compression::kGzip, Compression::kZlib}) {
    const std::string packed = pack("some bytes, and some bytes more", compression);
    for (std::size_t size = 1; size < packed.size(); ++size) {
      EXPECT_EQ(message_of<DataLoss>(
                    [&] { read_all(unpacked("a", source_of(packed.substr(0, size)), compression)); }),
                compression == Compression::kGzip ? "\"a\", read as GZIP, is cut off"
                                                  : "\"a\", read as ZLIB, is cut off")
          << size;
    }
  }
}

TEST(Compression, HandsOutWhatComesBeforeTheDamage) {
  const std::string bytes = some_bytes();
  std::string packed = pack(bytes, Compression::kGzip);
  packed[packed.size() - 8] ^= 1;  // the checksum
  const ByteSource source = unpacked("a", source_of(packed), Compression::kGzip);
  std::string got(bytes.size(), '\0');
  for (std::size_t done = 0; done < got.size();) done += source(got.data() + done, got.size() - done);
  EXPECT_EQ(got, bytes);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(message_of<DataLoss>([&] { source(got.data(), 1); }),
              "\"a\", read as GZIP, is damaged (incorrect data check)");
  }
}

TEST(Compression, TellsWhatIsNoSuchFile) {
  EXPECT_EQ(message_of<DataLoss>([] { read_all(unpacked("a", source_of("a text"), Compression::kGzip)); }),
            "\"a\", read as GZIP, is no such file (incorrect header check)");
}

}  // namespace
}  // namespace tandem::internal
