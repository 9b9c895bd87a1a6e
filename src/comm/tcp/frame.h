#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/engine.h"

namespace tandem::internal::tcp {

enum class FrameKind : std::uint8_t {
  kPosted = 1,  // into a receive that the other side has posted, or will
  kBound,       // into a buffer that the other side has registered, at `offset`
  kGoodbye,     // the sender issues no further operation; nothing follows
  kAbort,       // the sender gave up; the payload says why; nothing follows
};

// What precedes every payload. It says of which operation it is part, so that two members that are in
// different ones find out instead of mixing up their data. Little-endian, as the machines are; one of another
// kind fails the handshake.
struct FrameHeader {
  FrameKind kind = FrameKind::kPosted;
  OperationKind operation = OperationKind::kBarrier;
  ElementType type = ElementType::kUint8;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kAuto;
  std::int32_t root = -1;
  std::uint64_t sequence = 0;  // of the operation; collectives before it, for send and receive
  std::int64_t count = 0;      // elements of the whole operation
  std::uint64_t slot = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;        // of the payload
  std::array<char, 24> name = {};  // of the operation, cut off
};
static_assert(sizeof(FrameHeader) == 72);

inline constexpr std::uint64_t kLongestReason = 1000;  // payload of kAbort

// The part of the header that must be equal on both sides of an operation.
inline bool same_operation(const FrameHeader& a, const FrameHeader& b) {
  const auto kind = [](OperationKind k) { return k == OperationKind::kReceive ? OperationKind::kSend : k; };
  const bool point_to_point = kind(a.operation) == OperationKind::kSend;
  return a.sequence == b.sequence && kind(a.operation) == kind(b.operation) && a.type == b.type &&
         a.count == b.count && a.algorithm == b.algorithm && a.name == b.name &&
         (point_to_point || a.root == b.root);
}

// What a peer sent as text, fit for a message of one line.
inline std::string one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, ' ');
  return line;
}

inline std::string name_of(const FrameHeader& header) {
  const std::string_view whole(header.name.data(), header.name.size());
  return one_line(whole.substr(0, whole.find('\0')));
}

}  // namespace tandem::internal::tcp
