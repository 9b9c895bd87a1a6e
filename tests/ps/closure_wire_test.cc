#include "ps/closure_wire.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "support/errors.h"

namespace tandem::internal::ps {
namespace {

using testing_support::message_of;

std::span<const std::byte, kClosureHeaderBytes> header_in(const std::string& bytes) {
  return std::as_bytes(std::span(bytes)).first<kClosureHeaderBytes>();
}

TEST(ClosureWire, ReadsBackWhatWasWritten) {
  const std::string payload =
      encode_call({.function = "train_step", .arguments = std::string_view("a\0b", 3)});
  const std::string bytes =
      encode_header({.kind = ClosureMessageKind::kRun, .closure = 17, .settled_below = 12}, payload);
  const ClosureHeader header = parse_header(header_in(bytes));
  EXPECT_EQ(header, (ClosureHeader{.kind = ClosureMessageKind::kRun,
                                   .closure = 17,
                                   .settled_below = 12,
                                   .payload_bytes = payload.size(),
                                   .payload_crc = crc32c(payload.data(), payload.size())}));
  const ClosureCall call = decode_call(payload);
  EXPECT_EQ(call.function, "train_step");
  EXPECT_EQ(call.arguments, std::string_view("a\0b", 3));

  const std::vector<std::string> names{"a", "", std::string(kLongestFunctionName, 'x')};
  EXPECT_EQ(decode_functions(encode_functions(names)), names);
}

TEST(ClosureWire, RefusesAHeaderWithAnyBitTurned) {
  const std::string good =
      encode_header({.kind = ClosureMessageKind::kFailed, .code = 3, .closure = 5}, "text");
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW(parse_header(header_in(bytes)), InvalidArgument) << bit;
  }
}

// A header whose checksum is right, but of which one field is not.
std::string with(std::size_t at, std::string_view field, std::string bytes) {
  bytes.replace(at, field.size(), field);
  const std::uint32_t crc = crc32c(bytes.data(), kClosureHeaderBytes - sizeof(std::uint32_t));
  bytes.replace(kClosureHeaderBytes - sizeof crc, sizeof crc, reinterpret_cast<const char*>(&crc),
                sizeof crc);
  return bytes;
}

TEST(ClosureWire, RefusesFieldsThatCannotBe) {
  const std::string run =
      encode_header({.kind = ClosureMessageKind::kRun, .closure = 5, .settled_below = 2}, "");
  const std::string ping = encode_header({.kind = ClosureMessageKind::kPing}, "");
  const auto refusal = [&](std::size_t at, std::string_view field, const std::string& bytes) {
    return message_of<InvalidArgument>([&] { parse_header(header_in(with(at, field, bytes))); });
  };
  using namespace std::string_view_literals;
  EXPECT_NE(refusal(4, "\0"sv, run).find("no known kind"), std::string::npos);
  EXPECT_NE(refusal(4, "\x08"sv, run).find("no known kind"), std::string::npos);
  EXPECT_NE(refusal(5, "\x01"sv, run).find("code"), std::string::npos);
  EXPECT_NE(refusal(6, "\x01"sv, run).find("not zero"), std::string::npos);
  EXPECT_NE(refusal(8, "\0"sv, run).find("closure's number"), std::string::npos);
  EXPECT_NE(refusal(15, "\x7f"sv, run).find("closure's number"), std::string::npos);
  EXPECT_NE(refusal(8, "\x01"sv, ping).find("closure's number"), std::string::npos);
  EXPECT_NE(refusal(16, "\x06"sv, run).find("are over"), std::string::npos);
  EXPECT_NE(refusal(31, "\x01"sv, run).find("too long"), std::string::npos);
  EXPECT_NE(refusal(24, "\x01"sv, ping).find("too long"), std::string::npos);
}

TEST(ClosureWire, RefusesPayloadsThatEndTooEarlyOrTooLate) {
  const std::string names = encode_functions({"one", "two"});
  for (std::size_t size = 0; size < names.size(); ++size) {
    EXPECT_THROW(decode_functions(std::string_view(names).substr(0, size)), InvalidArgument) << size;
  }
  EXPECT_THROW(decode_functions(names + "x"), InvalidArgument);
  // Far more names than there are bytes.
  EXPECT_THROW(decode_functions(std::string_view("\xff\x0f\0\0", 4)), InvalidArgument);
  EXPECT_THROW(decode_call(""), InvalidArgument);
  EXPECT_THROW(decode_call(std::string_view("\x04\0abc", 5)), InvalidArgument);
  EXPECT_THROW(decode_call(std::string("\xff\xff") + std::string(70'000, 'a')), InvalidArgument);
}

TEST(ClosureWire, MakesErrorsOneLine) {
  EXPECT_EQ(closure_text("a\nb\tc\x7f"), "a b c ");
  EXPECT_EQ(closure_text(std::string("\xff") + "x"), "\xef\xbf\xbdx");
  EXPECT_LE(closure_text(std::string(1 << 20, '\xff')).size(), 4000u);
}

}  // namespace
}  // namespace tandem::internal::ps
