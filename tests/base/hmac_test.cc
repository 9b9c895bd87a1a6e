#include "base/hmac.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tandem::internal {
namespace {

std::string hex(const HmacTag& tag) {
  std::string text;
  for (const auto byte : tag) text += fmt::format("{:02x}", byte);
  return text;
}

struct Vector {
  std::string key;
  std::string message;
  std::string tag;
};

TEST(Hmac, GivesTheAnswersOfRfc4231) {
  std::string counting;
  for (char c = 1; c <= 25; ++c) counting += c;
  const std::vector<Vector> vectors = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {counting, std::string(50, '\xcd'), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
       "to be hashed before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const auto& vector : vectors) {
    EXPECT_EQ(hex(hmac_sha256(vector.key, vector.message)), vector.tag) << vector.message;
  }
}

TEST(Hmac, TakesAnEmptyKeyAndMessage) {
  EXPECT_EQ(hex(hmac_sha256({}, {})), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Hmac, ComparesWholeTags) {
  const HmacTag tag = hmac_sha256("key", "message");
  HmacTag other = tag;
  EXPECT_TRUE(equal_in_constant_time(tag, other));
  other.back() ^= 1;
  EXPECT_FALSE(equal_in_constant_time(tag, other));
  EXPECT_FALSE(equal_in_constant_time(tag, std::span(tag).first(31)));
  EXPECT_TRUE(equal_in_constant_time({}, {}));
}

TEST(RandomBytes, NeverRepeat) {
  std::set<std::array<std::uint8_t, 16>> seen;
  for (int i = 0; i < 1000; ++i) {
    std::array<std::uint8_t, 16> bytes{};
    random_bytes(bytes.data(), bytes.size());
    EXPECT_TRUE(seen.insert(bytes).second);
  }
  random_bytes(nullptr, 0);
}

}  // namespace
}  // namespace tandem::internal
