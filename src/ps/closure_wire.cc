#include "ps/closure_wire.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <cstring>
#include <type_traits>

#include "base/crc32c.h"
#include "base/utf8.h"
#include "ps/byte_codec.h"
#include "ps/limits.h"

namespace tandem::internal::ps {
namespace {

constexpr std::array<char, 4> kMagic{'T', 'C', 'L', '1'};
constexpr std::size_t kLongestText = 4000;

// How the header lies in memory.
struct RawHeader {
  std::array<char, 4> magic;
  std::uint8_t kind;
  std::uint8_t code;
  std::array<std::uint8_t, 2> zeros;
  std::uint64_t closure;
  std::uint64_t settled_below;
  std::uint64_t payload_bytes;
  std::uint32_t payload_crc;
  std::uint32_t crc;  // of all before it
};
static_assert(sizeof(RawHeader) == kClosureHeaderBytes &&
              std::has_unique_object_representations_v<RawHeader>);

std::uint32_t crc_of(const RawHeader& header) {
  return crc32c(&header, offsetof(RawHeader, crc));
}

struct Rule {
  bool names_closure = false;
  bool has_code = false;
  std::uint64_t most_payload = 0;
};

Rule rule_of(ClosureMessageKind kind) {
  constexpr std::uint64_t kNames = 8 + kMostFunctions * (2 + kLongestFunctionName);
  switch (kind) {
    case ClosureMessageKind::kReady:
      return {.most_payload = kNames};
    case ClosureMessageKind::kRun:
      return {.names_closure = true, .most_payload = kMostClosureBytes + 2 + kLongestFunctionName};
    case ClosureMessageKind::kResult:
      return {.names_closure = true, .most_payload = kMostClosureBytes};
    case ClosureMessageKind::kFailed:
      return {.names_closure = true, .has_code = true, .most_payload = kLongestText};
    case ClosureMessageKind::kGoodbye:
      return {.has_code = true, .most_payload = kLongestText};
    case ClosureMessageKind::kPing:
    case ClosureMessageKind::kPong:
      break;
  }
  return {};
}

bool is_error_code(std::uint8_t code) {
  // gRPC's codes are 1 to 16; those that tandem does not throw itself mean no harm.
  return code >= 1 && code <= 16;
}

const char* fault_of(const ClosureHeader& header) {
  const Rule rule = rule_of(header.kind);
  const bool runs = header.kind == ClosureMessageKind::kRun;
  if (rule.names_closure != (header.closure > 0) || header.closure > kMostSeq) {
    return "the closure's number is out of range";
  }
  if (runs != (header.settled_below > 0) || header.settled_below > header.closure) {
    return "the number below which closures are over is out of range";
  }
  const bool well = header.code == 0 && header.kind != ClosureMessageKind::kFailed;
  if (!well && !(rule.has_code && is_error_code(header.code))) return "the code is out of range";
  if (header.payload_bytes > rule.most_payload) return "the payload is too long";
  return nullptr;
}

template <typename Fn>
auto reading(const char* what, Fn fn) {
  try {
    return fn();
  } catch (const BytesFault& fault) {
    throw InvalidArgument(fmt::format("{} cannot be read: {}", what, fault.reason));
  }
}

ByteReader reader_of(std::string_view payload) {
  return ByteReader(std::as_bytes(std::span(payload)));
}

}  // namespace

std::string encode_header(ClosureHeader header, std::string_view payload) {
  header.payload_bytes = payload.size();
  assert(!fault_of(header));
  RawHeader raw{.magic = kMagic,
                .kind = static_cast<std::uint8_t>(header.kind),
                .code = header.code,
                .zeros = {},
                .closure = header.closure,
                .settled_below = header.settled_below,
                .payload_bytes = header.payload_bytes,
                .payload_crc = crc32c(payload.data(), payload.size()),
                .crc = 0};
  raw.crc = crc_of(raw);
  return {reinterpret_cast<const char*>(&raw), sizeof raw};
}

ClosureHeader parse_header(std::span<const std::byte, kClosureHeaderBytes> bytes) {
  RawHeader raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  const auto refuse = [](const char* reason) {
    throw InvalidArgument(fmt::format("a message cannot be read: {}", reason));
  };
  if (raw.magic != kMagic) refuse("it does not begin like one");
  if (raw.crc != crc_of(raw)) refuse("its header is damaged");
  if (raw.kind < 1 || raw.kind > static_cast<std::uint8_t>(ClosureMessageKind::kGoodbye)) {
    refuse("it is of no known kind");
  }
  if (raw.zeros != std::array<std::uint8_t, 2>{}) refuse("bytes that mean nothing are not zero");
  const ClosureHeader header{.kind = static_cast<ClosureMessageKind>(raw.kind),
                             .code = raw.code,
                             .closure = raw.closure,
                             .settled_below = raw.settled_below,
                             .payload_bytes = raw.payload_bytes,
                             .payload_crc = raw.payload_crc};
  if (const char* fault = fault_of(header)) refuse(fault);
  return header;
}

std::string encode_functions(const std::vector<std::string>& names) {
  ByteWriter writer;
  writer.count(names.size());
  for (const std::string& name : names) writer.text(name, kLongestFunctionName);
  return writer.take();
}

std::vector<std::string> decode_functions(std::string_view payload) {
  return reading("a list of functions", [&] {
    ByteReader reader = reader_of(payload);
    std::vector<std::string> names(reader.count(sizeof(std::uint16_t), kMostFunctions));
    for (std::string& name : names) reader.text(name, kLongestFunctionName);
    reader.end();
    return names;
  });
}

std::string encode_call(const ClosureCall& call) {
  ByteWriter writer;
  writer.text(std::string(call.function), kLongestFunctionName);
  std::string payload = writer.take();
  payload += call.arguments;
  return payload;
}

ClosureCall decode_call(std::string_view payload) {
  return reading("a closure", [&] {
    ByteReader reader = reader_of(payload);
    std::string name;
    reader.text(name, kLongestFunctionName);
    const std::size_t end = payload.size() - reader.rest().size();
    return ClosureCall{.function = payload.substr(end - name.size(), name.size()),
                       .arguments = payload.substr(end)};
  });
}

std::string closure_text(std::string_view text) {
  return one_line(text, kLongestText);
}

ErrorCode closure_error_code(const ClosureHeader& header) {
  return static_cast<ErrorCode>(header.code);
}

}  // namespace tandem::internal::ps
