#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/error.h"

namespace tandem::internal::ps {

// What a coordinator and its workers say to each other, as bytes: a header of a fixed size, with a checksum
// of its own, and then the payload that it announces. Numbers are little-endian.
//
//   worker        kReady {functions}          once it serves, and has nothing left to do from before
//   coordinator   kRun {function, arguments}  one at a time
//   worker        kResult {bytes} or kFailed {text}
//   coordinator   kPing                       at any time, answered by kPong at once, also while a closure
//   runs coordinator   kGoodbye {text}             there is nothing more to do; with a code, because it
//   failed

enum class ClosureMessageKind : std::uint8_t {
  kReady = 1,
  kRun,
  kResult,
  kFailed,
  kPing,
  kPong,
  kGoodbye,
};

inline constexpr std::size_t kClosureHeaderBytes = 40;
inline constexpr std::size_t kMostFunctions = 4096;
inline constexpr std::size_t kLongestFunctionName = 256;
// Of the arguments of one closure, and of its result.
inline constexpr std::uint64_t kMostClosureBytes = std::uint64_t{1} << 30;

struct ClosureHeader {
  ClosureMessageKind kind = ClosureMessageKind::kPing;
  std::uint8_t code = 0;            // kFailed: an ErrorCode; kGoodbye: 0, or one
  std::uint64_t closure = 0;        // kRun, kResult, kFailed
  std::uint64_t settled_below = 0;  // kRun: all closures below are over, and will not run again
  std::uint64_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;

  friend bool operator==(const ClosureHeader&, const ClosureHeader&) = default;
};

// A header for this payload, whose size and checksum are filled in.
std::string encode_header(ClosureHeader header, std::string_view payload);

// Throws InvalidArgument, with one line, for what is no header, for fields that cannot be, and for a payload
// that no message of its kind has.
ClosureHeader parse_header(std::span<const std::byte, kClosureHeaderBytes> bytes);

// Payloads. The readers throw InvalidArgument for what cannot be one.

std::string encode_functions(const std::vector<std::string>& names);
std::vector<std::string> decode_functions(std::string_view payload);

struct ClosureCall {
  std::string_view function = {};
  std::string_view arguments = {};
};
std::string encode_call(const ClosureCall& call);
// Views of the payload.
ClosureCall decode_call(std::string_view payload);

// Fit for a message of one line, and not too long for one.
std::string closure_text(std::string_view text);

// The code of a message that has one.
ErrorCode closure_error_code(const ClosureHeader& header);

}  // namespace tandem::internal::ps
