#include "rpc/data_key.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tandem::internal {
namespace {

constexpr const char* kCluster = "27bd65d7f1eb68876b98acb33d656dd3";
const std::vector<std::string> kShares{std::string(32, 'a'), std::string(32, 'b')};

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// The expected values are those of Python's hmac.
TEST(DataKey, IsTheHmacThatTheHeaderSays) {
  const Security token{.mode = Security::Mode::kToken, .token = "0123456789abcdef"};
  EXPECT_EQ(hex(data_key(token, kCluster, 3, kShares)),
            "15d1d8a136b64cddfe0723cbd45d9d8271874a0208ec321ead77685195c76d0a");
  EXPECT_EQ(hex(data_key({}, kCluster, 3, kShares)),
            "83f8ced9952e27d38140de61547d4095f4525a6d73e946556b517acae52c6bb8");
  EXPECT_EQ(hex(data_key({}, kCluster, 0x1234567890abcdef, kShares)),
            "312bb6d3be9ea2fb986d18d3a89a085220ee7269153d8dc32cc321b6ff6e2b55");
}

TEST(DataKey, ChangesWithEverythingThatItIsMadeOf) {
  const std::string key = data_key({}, kCluster, 1, kShares);
  EXPECT_EQ(key.size(), 32u);
  EXPECT_NE(data_key({.token = "another token than none"}, kCluster, 1, kShares), key);
  EXPECT_NE(data_key({}, std::string(32, '0'), 1, kShares), key);
  EXPECT_NE(data_key({}, kCluster, 2, kShares), key);
  EXPECT_NE(data_key({}, kCluster, 1, {kShares[1], kShares[0]}), key);
  EXPECT_NE(data_key({}, kCluster, 1, {kShares[0]}), key);
}

}  // namespace
}  // namespace tandem::internal
