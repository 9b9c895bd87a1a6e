#include "tandem/callbacks.h"

#include <gtest/gtest.h>

#include "tandem/error.h"

namespace tandem {
namespace {

TEST(LogsTest, KeepTheOrderInWhichNamesCame) {
  Logs logs;
  logs.set("loss", 3);
  logs.set("accuracy", 0.5);
  logs.set("loss", 2);
  ASSERT_EQ(logs.size(), 2U);
  EXPECT_EQ(logs.begin()->first, "loss");
  EXPECT_DOUBLE_EQ(logs.begin()->second, 2);
  EXPECT_DOUBLE_EQ(logs.at("accuracy"), 0.5);
  EXPECT_TRUE(logs.has("accuracy"));
  EXPECT_FALSE(logs.has("val_loss"));
}

TEST(LogsTest, NameWhatIsThereWhenAskedForAnother) {
  Logs logs;
  try {
    logs.at("loss");
    FAIL();
  } catch (const NotFound& error) {
    EXPECT_STREQ(error.what(), "the logs have no \"loss\"; there are: none");
  }
  logs.set("loss", 1);
  logs.set("accuracy", 1);
  try {
    logs.at("val_loss");
    FAIL();
  } catch (const NotFound& error) {
    EXPECT_STREQ(error.what(), "the logs have no \"val_loss\"; there are: loss, accuracy");
  }
}

}  // namespace
}  // namespace tandem
