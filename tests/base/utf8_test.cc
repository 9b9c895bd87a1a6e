#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tandem::internal {
namespace {

TEST(Utf8, IsToldFromOtherBytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("loss"));
  EXPECT_TRUE(is_utf8("Verlust \xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80"));
  EXPECT_FALSE(is_utf8("\xff"));
  EXPECT_FALSE(is_utf8("a\xc3"));         // cut
  EXPECT_FALSE(is_utf8("\xc0\x80"));      // overlong
  EXPECT_FALSE(is_utf8("\xe0\x80\x80"));  // overlong
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));  // a surrogate
  EXPECT_FALSE(is_utf8("\xf5\x80\x80\x80"));
}

TEST(Utf8, GetsAReplacementForWhatIsNot) {
  EXPECT_EQ(to_utf8("\xc3\xbc"), "\xc3\xbc");
  EXPECT_EQ(to_utf8("a\xff"
                    "b\xc3"),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
}

}  // namespace
}  // namespace tandem::internal
