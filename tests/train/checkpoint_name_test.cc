#include "train/checkpoint_name.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/errors.h"
#include "tandem/error.h"
#include "train/python_float.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;

const std::vector<std::pair<std::string, double>> kLogs{
    {"loss", 0.5}, {"val_loss", 0.12345}, {"val_top-5", 1}};

std::string name(const std::string& pattern, CheckpointMoment moment = {.epoch = 6}) {
  return checkpoint_name(pattern, moment, kLogs);
}

// What Python's str.format gives for the same.
TEST(CheckpointName, IsFilledInAsPythonDoes) {
  EXPECT_EQ(name("plain"), "plain");
  EXPECT_EQ(name("weights.{epoch:02d}-{val_loss:.2f}.ckpt"), "weights.07-0.12.ckpt");
  EXPECT_EQ(name("{epoch}"), "7");
  EXPECT_EQ(name("{epoch:>4}|{epoch:<4}|{epoch:^4}|{epoch:+d}|{epoch:x}"), "   7|7   | 7  |+7|7");
  EXPECT_EQ(name("{epoch:.1f} {epoch:e}"), "7.0 7.000000e+00");
  EXPECT_EQ(name("{loss} {val_loss} {val_top-5}"), "0.5 0.12345 1.0");
  EXPECT_EQ(name("{val_loss:8.3f}|{val_loss:e}|{val_loss:g}"), "   0.123|1.234500e-01|0.12345");
  EXPECT_EQ(name("{{{epoch}}}"), "{7}");
}

TEST(CheckpointName, HasTheBatchWhereThereIsOne) {
  EXPECT_EQ(name("{epoch}-{batch:04d}", {.epoch = 0, .batch = 99}), "1-0100");
  const std::vector<std::pair<std::string, double>> logs{{"batch", 3.5}};
  EXPECT_EQ(checkpoint_name("{batch}", {.epoch = 0, .batch = 99}, logs), "3.5");
}

TEST(CheckpointName, SaysWhatIsWrongWithThePattern) {
  const auto refusal = [](const std::string& pattern) {
    return message_of<InvalidArgument>([&] { name(pattern); });
  };
  EXPECT_EQ(
      refusal("a{batch}"),
      "the checkpoint's name \"a{batch}\" has the field {batch}, which there is not; there are: epoch, loss, "
      "val_loss, val_top-5");
  EXPECT_EQ(refusal("{}").substr(0, 56), "the checkpoint's name \"{}\" has the field {}, which there");
  EXPECT_EQ(refusal("{0}").substr(0, 58), "the checkpoint's name \"{0}\" has the field {0}, which there");
  EXPECT_EQ(refusal("{epoch"),
            "the checkpoint's name \"{epoch\" has a brace without its other half: write {{ or }} for one");
  EXPECT_EQ(refusal("epoch}"),
            "the checkpoint's name \"epoch}\" has a brace without its other half: write {{ or }} for one");
  EXPECT_NE(refusal("{val_loss:d}").find("has the field {val_loss:d}: "), std::string::npos);
  EXPECT_NE(refusal("{epoch:{epoch}}").find("has the field {epoch:{epoch}: "), std::string::npos);
}

TEST(PythonFloat, PrintsAsPythonDoes) {
  EXPECT_EQ(python_float(0), "0.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(1), "1.0");
  EXPECT_EQ(python_float(0.1), "0.1");
  EXPECT_EQ(python_float(0.1F), "0.10000000149011612");
  EXPECT_EQ(python_float(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(0.00001), "1e-05");
  EXPECT_EQ(python_float(1234567890123456.0), "1234567890123456.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(1.5e300), "1.5e+300");
  EXPECT_EQ(python_float(5e-324), "5e-324");
  EXPECT_EQ(python_float(-123456.789), "-123456.789");
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(python_float(inf), "inf");
  EXPECT_EQ(python_float(-inf), "-inf");
  EXPECT_EQ(python_float(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

}  // namespace
}  // namespace tandem::internal
