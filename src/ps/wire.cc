#include "ps/wire.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>
#include <type_traits>

#include "base/crc32c.h"
#include "base/utf8.h"
#include "checkpoint/safetensors.h"
#include "ps/byte_codec.h"
#include "ps/limits.h"
#include "ps/wire_faults.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

constexpr std::array<char, 4> kMagic{'T', 'P', 'S', '1'};
constexpr std::size_t kLongestDtype = 8;
// Entries have 32 bytes, those of whole shards about twice as many; the rest of any message fits beside them.
constexpr std::size_t kLargestHeader = kMostShards * 32 + 4096;
constexpr std::size_t kLargestTensorHeader = kMostShardTensors * 64;

std::size_t largest_header(MessageKind kind) {
  const bool has_tensors =
      kind == MessageKind::kInitialise || kind == MessageKind::kReadReply || kind == MessageKind::kAssign;
  return has_tensors ? kLargestTensorHeader : kLargestHeader;
}

// How the prologue lies in memory.
struct RawPrologue {
  std::array<char, 4> magic;
  std::uint8_t kind;
  std::array<std::uint8_t, 3> zeros;
  std::uint32_t header_bytes;
  std::uint32_t crc;
  std::uint64_t payload_bytes;
};
static_assert(sizeof(RawPrologue) == kPrologueBytes && std::has_unique_object_representations_v<RawPrologue>);

// The checksum covers the prologue too, as if its own place held zeros.
std::uint32_t crc_of(RawPrologue prologue, std::span<const std::byte> header) {
  prologue.crc = 0;
  return crc32c(header.data(), header.size(), crc32c(&prologue, sizeof prologue));
}

RawPrologue raw(const Prologue& prologue) {
  return {.magic = kMagic,
          .kind = static_cast<std::uint8_t>(prologue.kind),
          .zeros = {},
          .header_bytes = prologue.header_bytes,
          .crc = prologue.crc,
          .payload_bytes = prologue.payload_bytes};
}

template <typename Message>
constexpr MessageKind kKindOf{};
template <>
constexpr MessageKind kKindOf<Hello> = MessageKind::kHello;
template <>
constexpr MessageKind kKindOf<HelloReply> = MessageKind::kHelloReply;
template <>
constexpr MessageKind kKindOf<Push> = MessageKind::kPush;
template <>
constexpr MessageKind kKindOf<PushReplies> = MessageKind::kPushReply;
template <>
constexpr MessageKind kKindOf<Pull> = MessageKind::kPull;
template <>
constexpr MessageKind kKindOf<PullReply> = MessageKind::kPullReply;
template <>
constexpr MessageKind kKindOf<Initialise> = MessageKind::kInitialise;
template <>
constexpr MessageKind kKindOf<Finished> = MessageKind::kFinished;
template <>
constexpr MessageKind kKindOf<Answer> = MessageKind::kAnswer;
template <>
constexpr MessageKind kKindOf<Read> = MessageKind::kRead;
template <>
constexpr MessageKind kKindOf<ReadReply> = MessageKind::kReadReply;
template <>
constexpr MessageKind kKindOf<Assign> = MessageKind::kAssign;

const char* kind_name(MessageKind kind) {
  constexpr std::array kNames{"hello",  "hello reply", "push",       "push reply",
                              "pull",   "pull reply",  "initialise", "finished",
                              "answer", "read",        "read reply", "shard assignment"};
  return kNames[static_cast<std::size_t>(kind) - 1];
}

// A bool on the wire is 0 or 1; any other byte in one would be undefined behaviour.
void flag(ByteWriter& codec, const bool& value) {
  codec(static_cast<std::uint8_t>(value));
}
void flag(ByteReader& codec, bool& value) {
  std::uint8_t byte = 0;
  codec(byte);
  if (byte > 1) throw BytesFault{"a flag is neither 0 nor 1"};
  value = byte == 1;
}

void incarnation_fields(auto& codec, auto& incarnation) {
  codec(incarnation.high);
  codec(incarnation.low);
}

// Of all entries. Cannot overflow: 2^18 entries of at most 2^40 rows and values of 8 bytes, or 2^20 tensors.
static_assert(kMostShards <= std::size_t{1} << 18 && kMostElements <= std::uint64_t{1} << 40 &&
              kMostShardTensors <= std::size_t{1} << 20);

template <typename Message>
std::uint64_t payload_of(const Message& message) {
  std::uint64_t bytes = 0;
  if constexpr (requires { message.text_bytes(); }) bytes = message.text_bytes();
  if constexpr (requires { message.entries[0].payload_bytes(); }) {
    for (const auto& entry : message.entries) bytes += entry.payload_bytes();
  }
  return bytes;
}

template <typename Message>
std::string encode_any(const Message& message) {
  assert(fault_of(message) == nullptr);
  ByteWriter out;
  Message::fields(out, message);
  const std::string header = out.take();
  RawPrologue prologue = raw({.kind = kKindOf<Message>,
                              .header_bytes = static_cast<std::uint32_t>(header.size()),
                              .payload_bytes = payload_of(message)});
  prologue.crc = crc_of(prologue, std::as_bytes(std::span(header)));
  std::string bytes(reinterpret_cast<const char*>(&prologue), sizeof prologue);
  return bytes += header;
}

template <typename Message>
std::string encode_with_text(const Message& message) {
  if (message.message.size() <= kLongestMessageText && is_one_line(message.message))
    return encode_any(message);
  Message copy = message;
  copy.message = one_line(message.message, kLongestMessageText);
  return encode_any(copy);
}

}  // namespace

void Hello::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
  codec.fixed(self.plan_digest, kDigestDigits);
  codec(self.oldest_seq);
  codec(self.step);
}

void HelloReply::Entry::fields(auto& codec, auto& self) {
  codec(self.shard);
  codec.zeros(4);
  codec(self.version);
  codec(self.last_seq);
  codec(self.lost);
}

void HelloReply::fields(auto& codec, auto& self) {
  codec(self.status);
  flag(codec, self.resumed);
  codec(self.step);
  codec(self.global_step);
  codec.list(self.shards, kMostShards);
  codec.text(self.message, kLongestMessageText);
}

void Push::Entry::fields(auto& codec, auto& self) {
  codec(self.shard);
  codec(self.kind);
  codec(self.type);
  codec.zeros(2);
  codec(self.rows);
  codec(self.count);
  codec(self.crc);
  codec.zeros(4);
}

void Push::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
  codec(self.seq);
  codec(self.closure);
  codec(self.closure_push);
  codec(self.closures_settled);
  codec(self.step);
  codec(self.learning_rate);
  codec.list(self.entries, kMostShards);
}

void PushReplies::Entry::fields(auto& codec, auto& self) {
  codec(self.shard);
  codec(self.status);
  flag(codec, self.repeated);
  codec.zeros(2);
  codec(self.version);
  codec(self.last_seq);
  codec(self.durable_seq);
}

void PushReplies::fields(auto& codec, auto& self) {
  codec(self.seq);
  codec(self.step);
  codec(self.global_step);
  codec.list(self.entries, kMostShards);
  codec.text(self.message, kLongestMessageText);
}

void Pull::Entry::fields(auto& codec, auto& self) {
  codec(self.shard);
  codec(self.kind);
  codec(self.type);
  codec.zeros(2);
  codec(self.rows);
  codec(self.known_version);
  codec(self.crc);
  codec.zeros(4);
}

void Pull::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
  codec(self.step);
  codec.list(self.entries, kMostShards);
}

void PullReply::Entry::fields(auto& codec, auto& self) {
  codec(self.shard);
  codec(self.status);
  codec(self.kind);
  codec(self.type);
  codec.zeros(1);
  codec(self.version);
  codec(self.count);
  codec(self.crc);
  codec.zeros(4);
}

void PullReply::fields(auto& codec, auto& self) {
  codec(self.global_step);
  codec.list(self.entries, kMostShards);
  codec.text(self.message, kLongestMessageText);
}

std::uint64_t ShardTensor::payload_bytes() const {
  return tensor_bytes(dtype, shape).value_or(0);
}

void ShardTensor::fields(auto& codec, auto& self) {
  codec(self.shard);
  codec.text(self.name, kLongestStateName);
  codec.text(self.dtype, kLongestDtype);
  codec.numbers(self.shape, kMostDimensions);
  codec(self.crc);
}

void Initialise::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
  codec(self.global_step);
  codec(self.plan_bytes);
  codec(self.optimizer_bytes);
  codec(self.texts_crc);
  codec.list(self.entries, kMostShardTensors);
}

void Read::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
  codec(self.shard);
}

void ReadReply::fields(auto& codec, auto& self) {
  codec(self.status);
  codec(self.version);
  codec.list(self.entries, kMostShardTensors);
  codec.text(self.message, kLongestMessageText);
}

void Assign::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
  flag(codec, self.has_global_step);
  codec(self.global_step);
  codec.list(self.entries, kMostShardTensors);
}

void Finished::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
}

void Answer::fields(auto& codec, auto& self) {
  codec(self.status);
  flag(codec, self.before);
  codec.text(self.message, kLongestMessageText);
}

const char* wire_type_name(WireType type) {
  return type == WireType::kFloat32 ? "float32" : type == WireType::kFloat64 ? "float64" : "bfloat16";
}

Prologue parse_prologue(std::span<const std::byte, kPrologueBytes> bytes, std::uint64_t most_payload) {
  RawPrologue raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  const Prologue prologue{.kind = static_cast<MessageKind>(raw.kind),
                          .header_bytes = raw.header_bytes,
                          .crc = raw.crc,
                          .payload_bytes = raw.payload_bytes};
  if (raw.magic != kMagic) throw InvalidArgument("not a message of a parameter server");
  if (raw.kind < 1 || prologue.kind > kLastKind || raw.zeros != std::array<std::uint8_t, 3>{}) {
    throw InvalidArgument(fmt::format("a message of an unknown kind ({})", raw.kind));
  }
  if (prologue.header_bytes > largest_header(prologue.kind)) {
    throw InvalidArgument(fmt::format("a {} with a header of {} bytes: expected at most {}",
                                      kind_name(prologue.kind), prologue.header_bytes,
                                      largest_header(prologue.kind)));
  }
  if (prologue.payload_bytes > most_payload) {
    throw InvalidArgument(fmt::format("a {} with {} bytes of tensors: expected at most {}",
                                      kind_name(prologue.kind), prologue.payload_bytes, most_payload));
  }
  return prologue;
}

template <typename Message>
Message decode(const Prologue& prologue, std::span<const std::byte> header) {
  const MessageKind kind = kKindOf<Message>;
  try {
    if (prologue.kind != kind) throw BytesFault{"another kind of message came"};
    if (prologue.header_bytes != header.size()) throw BytesFault{"its header has another length"};
    if (prologue.crc != crc_of(raw(prologue), header)) throw BytesFault{"damaged on the way"};
    ByteReader in(header);
    Message message;
    Message::fields(in, message);
    in.end();
    if (const char* fault = fault_of(message)) throw BytesFault{fault};
    if (payload_of(message) != prologue.payload_bytes) throw BytesFault{"its tensors have another size"};
    return message;
  } catch (const BytesFault& fault) {
    throw InvalidArgument(fmt::format("a {} is refused: {}", kind_name(kind), fault.reason));
  }
}

template Hello decode(const Prologue&, std::span<const std::byte>);
template HelloReply decode(const Prologue&, std::span<const std::byte>);
template Push decode(const Prologue&, std::span<const std::byte>);
template PushReplies decode(const Prologue&, std::span<const std::byte>);
template Pull decode(const Prologue&, std::span<const std::byte>);
template PullReply decode(const Prologue&, std::span<const std::byte>);
template Initialise decode(const Prologue&, std::span<const std::byte>);
template Finished decode(const Prologue&, std::span<const std::byte>);
template Answer decode(const Prologue&, std::span<const std::byte>);
template Read decode(const Prologue&, std::span<const std::byte>);
template ReadReply decode(const Prologue&, std::span<const std::byte>);
template Assign decode(const Prologue&, std::span<const std::byte>);

std::string encode(const Hello& message) {
  return encode_any(message);
}
std::string encode(const HelloReply& message) {
  return encode_with_text(message);
}
std::string encode(const Push& message) {
  return encode_any(message);
}
std::string encode(const PushReplies& message) {
  return encode_with_text(message);
}
std::string encode(const Pull& message) {
  return encode_any(message);
}
std::string encode(const PullReply& message) {
  return encode_with_text(message);
}

std::string encode(const Initialise& message) {
  return encode_any(message);
}
std::string encode(const Finished& message) {
  return encode_any(message);
}
std::string encode(const Answer& message) {
  return encode_with_text(message);
}
std::string encode(const Read& message) {
  return encode_any(message);
}
std::string encode(const ReadReply& message) {
  return encode_with_text(message);
}
std::string encode(const Assign& message) {
  return encode_any(message);
}

std::uint32_t payload_crc(const PayloadSpans& payload) {
  return crc32c(payload.values.data(), payload.values.size(),
                crc32c(payload.row_ids.data(), payload.row_ids.size()));
}

std::string fault_of_rows(std::span<const std::int64_t> row_ids, std::int64_t rows) {
  std::int64_t last = -1;
  for (const std::int64_t row : row_ids) {
    if (row < 0 || row >= rows) return fmt::format("row {} of a shard of {} rows", row, rows);
    if (row <= last) return fmt::format("row {} after row {}: expected ascending numbers", row, last);
    last = row;
  }
  return {};
}

}  // namespace tandem::internal::ps
