#include "base/example.h"

#include <gtest/gtest.h>

#include "base/record_file.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using Strings = std::vector<std::string>;
using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;
using namespace std::string_literals;

const RecordPlace kPlace{"a.tfrecord", 3};

// What TensorFlow 2.21 wrote (SerializeToString(deterministic=True)), and what it wrote it of.
Example golden_example() {
  return {{{"label", Integers{3, -1, 300}},
           {"name", Strings{"a", "", "\0\xff"s}},
           {"no_floats", Floats{}},
           {"none", {}},
           {"x", Floats{0.5f, -2}},
           {"\xc3\xa4", Strings{}}}};
}
const std::string kGolden =
    "\n\x69"
    "\n\x1a\n\5label\x12\x11\x1a\x0f\n\x0d\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\xac\2"
    "\n\x13\n\4name\x12\x0b\n\x09\n\1a\n\0\n\2\0\xff"
    "\n\x0f\n\x09no_floats\x12\2\x12\0"
    "\n\x08\n\4none\x12\0"
    "\n\x11\n\1x\x12\x0c\x12\n\n\x08\0\0\0\x3f\0\0\0\xc0"
    "\n\x08\n\2\xc3\xa4\x12\2\n\0"s;

TEST(Example, ReadsWhatTensorFlowWrote) {
  RecordReader reader(TANDEM_TEST_FILES "/oracles/examples.tfrecord");
  for (int i = 0; i < 5; ++i) {
    const auto record = reader.next_view();
    ASSERT_TRUE(record);
    const Example example = parse_example(*record, {reader.name(), i});
    EXPECT_EQ(example.features.size(), 3u);
    EXPECT_EQ(int64_list(example, "label", kPlace), (Integers{i, -i}));
    EXPECT_EQ(bytes_list(example, "name", kPlace), (Strings{"example " + std::to_string(i)}));
    EXPECT_EQ(float_list(example, "x", kPlace),
              (Floats{static_cast<float>(i) / 2, static_cast<float>(i / 1000.0)}));
  }
  EXPECT_FALSE(reader.next_view());
}

TEST(Example, WritesTheBytesThatTensorFlowWrites) {
  EXPECT_EQ(encode_example(golden_example()), kGolden);
  EXPECT_EQ(parse_example(kGolden, kPlace), golden_example());
}

TEST(Example, ReadsNumbersThatAreNotPacked) {
  const std::string floats = "\n\x13\n\x11\n\1x\x12\x0c\x12\n\x0d\0\0\0\x3f\x0d\0\0\0\xc0"s;
  EXPECT_EQ(float_list(parse_example(floats, kPlace), "x", kPlace), (Floats{0.5f, -2}));
  const std::string integers = "\n\x0e\n\x0c\n\1x\x12\7\x1a\5\x08\7\x08\xac\2"s;
  EXPECT_EQ(int64_list(parse_example(integers, kPlace), "x", kPlace), (Integers{7, 300}));
}

TEST(Example, PassesOverWhatItDoesNotKnow) {
  const std::string unknown =
      "\x12\3abc\x18\xac\2\x25"
      "1234"
      "\x29"
      "12345678"s;
  const Example one{{{"x", Integers{1}}}};
  EXPECT_EQ(parse_example(unknown + encode_example(one) + unknown, kPlace), one);
  EXPECT_EQ(parse_example("", kPlace), Example{});
}

TEST(Example, TakesTheLaterOfTwo) {
  const std::string first = encode_example({{{"x", Integers{1}}, {"y", Integers{2}}}});
  const std::string second = encode_example({{{"x", Floats{3}}}});
  EXPECT_EQ(parse_example(first + second, kPlace), (Example{{{"x", Floats{3}}, {"y", Integers{2}}}}));
}

TEST(Example, RefusesEveryCutThatShows) {
  for (std::size_t size = 1; size < kGolden.size(); ++size) {
    EXPECT_EQ(message_of<DataLoss>([&] { parse_example(kGolden.substr(0, size), kPlace); }),
              size == 1 ? "record 3 of \"a.tfrecord\" is no tf.train.Example: a number does not end"
                        : "record 3 of \"a.tfrecord\" is no tf.train.Example: a field ends after the record")
        << size;
  }
}

TEST(Example, SaysWhatIsWrongWithARecord) {
  const auto complaint = [](const std::string& bytes, const ExampleLimits& limits = {}) {
    const std::string message = message_of<DataLoss>([&] { parse_example(bytes, kPlace, limits); });
    return message.substr(std::string("record 3 of \"a.tfrecord\" is no tf.train.Example: ").size());
  };
  EXPECT_EQ(complaint("some text"), "a field is of a kind that there is not");
  EXPECT_EQ(complaint("\2\0"s), "a field has a number that there is not");
  EXPECT_EQ(complaint("\x08\1"), "features is a number");
  EXPECT_EQ(complaint("\n\5\n\3\n\1\xff"), "the name of a feature is not UTF-8");
  EXPECT_EQ(complaint("\n\x0b\n\x09\n\1x\x12\4\x12\2\x08\1"), "a value of a float list is no float");
  EXPECT_EQ(complaint("\n\x0c\n\x0a\n\1x\x12\5\x12\3\n\1a"), "a float list ends in the middle of one");
  EXPECT_EQ(complaint("\n\x0e\n\x0c\n\1x\x12\7\x1a\5\x0d"
                      "1234"),
            "a value of an int64 list is no integer");
  const std::string four = encode_example({{{"x", Integers{1, 2, 3}}}});
  EXPECT_EQ(complaint(four, {.max_values = 3}), "it has more values than are read");
  EXPECT_NO_THROW(parse_example(four, kPlace, {.max_values = 4}));
}

TEST(Example, SaysWhichFeatureIsMissingOrOfAnotherKind) {
  const Example example{{{"label", Floats{1}}, {"none", {}}}};
  EXPECT_EQ(message_of<InvalidArgument>([&] { int64_list(example, "label", kPlace); }),
            "feature \"label\" of record 3 of \"a.tfrecord\" is a float list: expected an int64 list");
  EXPECT_EQ(message_of<InvalidArgument>([&] { float_list(example, "none", kPlace); }),
            "feature \"none\" of record 3 of \"a.tfrecord\" is empty: expected a float list");
  EXPECT_EQ(message_of<InvalidArgument>([&] { bytes_list(example, "image", kPlace); }),
            "record 3 of \"a.tfrecord\" has no feature \"image\"; it has: label, none");
  EXPECT_EQ(message_of<InvalidArgument>([&] { bytes_list({}, "image", kPlace); }),
            "record 3 of \"a.tfrecord\" has no feature \"image\"; it has: none");
}

}  // namespace
}  // namespace tandem::internal
