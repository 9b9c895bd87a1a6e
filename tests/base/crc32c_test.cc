#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace tandem::internal {
namespace {

std::uint32_t crc_of(std::string_view text) {
  return crc32c(text.data(), text.size());
}

// Bit by bit, as the definition says.
std::uint32_t by_definition(const unsigned char* bytes, std::size_t size) {
  std::uint32_t crc = 0xffffffff;
  for (std::size_t i = 0; i < size; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::vector<unsigned char> random_data(std::size_t size) {
  std::vector<unsigned char> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<unsigned char>(mix(i));
  return data;
}

// RFC 3720, B.4, and the check value that every catalogue of checksums has.
TEST(Crc32c, GivesTheStandardsAnswers) {
  EXPECT_EQ(crc_of(""), 0u);
  EXPECT_EQ(crc_of("123456789"), 0xe3069283u);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending(32, '\0');
  std::iota(ascending.begin(), ascending.end(), '\0');
  EXPECT_EQ(crc_of(ascending), 0x46dd794eu);
  std::reverse(ascending.begin(), ascending.end());
  EXPECT_EQ(crc_of(ascending), 0x113fdb5cu);
}

TEST(Crc32c, IsTheSameByInstructionByTableAndByDefinition) {
  const auto data = random_data(80'000);
  for (std::size_t size : {0, 1, 7, 8, 9, 63, 1535, 1536, 1537, 1543, 3072, 24'575, 24'576, 24'577, 79'990}) {
    for (std::size_t start = 0; start < 9; start += 4) {
      const unsigned char* bytes = data.data() + start;
      const std::uint32_t expected = by_definition(bytes, size);
      EXPECT_EQ(crc32c(bytes, size), expected) << size << " bytes from " << start;
      EXPECT_EQ(crc32c_by_table(bytes, size), expected) << size << " bytes from " << start;
    }
  }
}

TEST(Crc32c, GoesOnFromAnEarlierOne) {
  const auto data = random_data(60'000);
  const std::uint32_t whole = crc32c(data.data(), data.size());
  for (std::size_t cut : {0, 1, 5, 8, 1536, 30'000, 59'999, 60'000}) {
    EXPECT_EQ(crc32c(data.data() + cut, data.size() - cut, crc32c(data.data(), cut)), whole) << cut;
    EXPECT_EQ(crc32c_by_table(data.data() + cut, data.size() - cut, crc32c_by_table(data.data(), cut)), whole)
        << cut;
  }
}

// A record's length, 61, in eight bytes, and their checksum as TensorFlow wrote it.
TEST(Crc32c, IsMaskedAsRecordFilesHaveIt) {
  const std::uint64_t length = 61;
  EXPECT_EQ(masked_crc32c(&length, sizeof length), 0xecf14960u);
}

}  // namespace
}  // namespace tandem::internal
