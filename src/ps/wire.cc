#include "ps/wire.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/crc32c.h"
#include "base/utf8.h"
#include "ps/byte_codec.h"
#include "ps/limits.h"
#include "ps/push_ledger.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

constexpr std::array<char, 4> kMagic{'T', 'P', 'S', '1'};
constexpr std::size_t kDigestDigits = 64;
// Entries have 32 bytes; the rest of any message fits beside them.
constexpr std::size_t kLargestHeader = kMostShards * 32 + 4096;

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

const char* kind_name(MessageKind kind) {
  constexpr std::array kNames{"hello",      "hello reply", "push",     "push reply", "pull",
                              "pull reply", "initialise",  "finished", "answer"};
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

bool is_one_line(std::string_view text) {
  return is_utf8(text) &&
         std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7f; });
}

// What is wrong with a message, or nothing. The sizes have been checked; these are the values.

const char* fault_of_sender(std::uint32_t worker, const Incarnation& incarnation) {
  if (worker >= kMostWorkers) return "the worker's number is too large";
  if (!incarnation) return "the worker has no incarnation";
  return nullptr;
}

template <typename Entry>
const char* fault_of_order(const std::vector<Entry>& entries) {
  const auto not_after = [](const Entry& a, const Entry& b) { return a.shard >= b.shard; };
  if (std::ranges::adjacent_find(entries, not_after) != entries.end()) return "the shards do not ascend";
  if (!entries.empty() && entries.back().shard >= kMostShards) return "a shard's number is too large";
  return nullptr;
}

bool is_valid(WireType type) {
  return type <= WireType::kBfloat16;
}

const char* fault_of(const Push::Entry& entry) {
  if (!is_valid(entry.type)) return "an entry is of an unknown type";
  if (entry.count > kMostElements || entry.rows > kMostElements) return "an entry is too large";
  switch (entry.kind) {
    case PayloadKind::kNothing:
      return entry.rows != 0 || entry.count != 0 || entry.crc != 0 ? "an entry without payload has a size"
                                                                   : nullptr;
    case PayloadKind::kDense:
      return entry.rows != 0 ? "a dense entry has rows" : nullptr;
    case PayloadKind::kRows:
      return entry.rows == 0 || entry.count % entry.rows != 0 ? "an entry's values are not whole rows"
                                                              : nullptr;
  }
  return "an entry is of an unknown kind";
}

const char* fault_of(const Pull::Entry& entry) {
  if (!is_valid(entry.type)) return "an entry is of an unknown type";
  if (entry.known_version > kMostSeq) return "a version is too large";
  if (entry.kind == PayloadKind::kDense) {
    return entry.rows != 0 || entry.crc != 0 ? "a dense entry has rows" : nullptr;
  }
  if (entry.kind != PayloadKind::kRows) return "an entry is of an unknown kind";
  return entry.rows == 0 || entry.rows > kMostElements ? "an entry has no rows or too many" : nullptr;
}

const char* fault_of(const PullReply::Entry& entry) {
  if (!is_valid(entry.type)) return "an entry is of an unknown type";
  if (entry.kind > PayloadKind::kRows) return "an entry is of an unknown kind";
  if (entry.status > kLastStatus) return "an entry has an unknown status";
  if (entry.count > kMostElements || entry.version > kMostSeq) return "an entry is too large";
  const bool empty = entry.kind == PayloadKind::kNothing;
  if (empty && (entry.count != 0 || entry.crc != 0)) return "an entry without payload has a size";
  if (!empty && entry.status != Status::kApplied) return "an entry that was refused has values";
  return nullptr;
}

const char* fault_of(const PushReplies::Entry& entry) {
  if (entry.status > kLastStatus) return "an entry has an unknown status";
  if (entry.version > kMostSeq || entry.last_seq > kMostSeq || entry.durable_seq > entry.last_seq) {
    return "an entry's numbers cannot be";
  }
  return nullptr;
}

const char* fault_of(const HelloReply::Entry& entry) {
  const bool possible =
      entry.version <= kMostSeq && entry.last_seq <= kMostSeq && entry.lost <= entry.last_seq;
  return possible ? nullptr : "an entry's numbers cannot be";
}

template <typename Entry>
const char* fault_of(const std::vector<Entry>& entries) {
  if (const char* fault = fault_of_order(entries)) return fault;
  for (const Entry& entry : entries) {
    if (const char* fault = fault_of(entry)) return fault;
  }
  return nullptr;
}

const char* fault_of(const Hello& hello) {
  if (const char* fault = fault_of_sender(hello.worker, hello.incarnation)) return fault;
  if (hello.plan_digest.size() != kDigestDigits ||
      hello.plan_digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return "the plan's digest is none";
  }
  if (hello.oldest_seq < 1 || hello.oldest_seq > kMostSeq || hello.step > kMostSeq)
    return "a number is too large";
  return nullptr;
}

const char* fault_of(const HelloReply& reply) {
  if (reply.status > kLastStatus) return "the status is unknown";
  if (reply.step > kMostSeq || reply.global_step > kMostSeq) return "a number is too large";
  if (!is_one_line(reply.message)) return "the text is not one line";
  return fault_of(reply.shards);
}

const char* fault_of(const Push& push) {
  if (const char* fault = fault_of_sender(push.worker, push.incarnation)) return fault;
  if (push.seq < 1 || push.seq > kMostSeq || push.closure > kMostSeq || push.closures_settled > kMostSeq ||
      push.step > kMostSeq) {
    return "a number is too large, or seq is 0";
  }
  if (push.closure_push >= kMostClosurePushes || (push.closure == 0 && push.closure_push != 0)) {
    return "a closure has too many pushes";
  }
  if (!std::isfinite(push.learning_rate)) return "the learning rate is not finite";
  if (push.entries.empty()) return "it is for no shard";
  return fault_of(push.entries);
}

const char* fault_of(const PushReplies& reply) {
  if (reply.seq > kMostSeq || reply.global_step > kMostSeq) return "a number is too large";
  if (!is_one_line(reply.message)) return "the text is not one line";
  return fault_of(reply.entries);
}

const char* fault_of(const Pull& pull) {
  if (const char* fault = fault_of_sender(pull.worker, pull.incarnation)) return fault;
  if (pull.step > kMostSeq) return "a number is too large";
  if (pull.entries.empty()) return "it is for no shard";
  return fault_of(pull.entries);
}

const char* fault_of(const PullReply& reply) {
  if (!is_one_line(reply.message)) return "the text is not one line";
  return fault_of(reply.entries);
}

const char* fault_of(const Initialise& message) {
  if (const char* fault = fault_of_sender(message.worker, message.incarnation)) return fault;
  if (message.plan_bytes > kLongestPlanText || message.optimizer_bytes > kLongestOptimizerText) {
    return "a text is too long";
  }
  if (std::ranges::any_of(message.entries, [](const auto& e) { return e.kind != PayloadKind::kDense; })) {
    return "an entry is not dense";
  }
  return fault_of(message.entries);
}

const char* fault_of(const Finished& message) {
  return fault_of_sender(message.worker, message.incarnation);
}

const char* fault_of(const Answer& answer) {
  if (answer.status > kLastStatus) return "the status is unknown";
  return is_one_line(answer.message) ? nullptr : "the text is not one line";
}

// Of all entries. Cannot overflow: 2^18 entries of at most 2^40 rows and values of 8 bytes.
static_assert(kMostShards <= std::size_t{1} << 18 && kMostElements <= std::uint64_t{1} << 40);

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
  codec.list(self.entries, kMostShards);
  codec.text(self.message, kLongestMessageText);
}

void Initialise::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
  codec(self.plan_bytes);
  codec(self.optimizer_bytes);
  codec(self.texts_crc);
  codec.list(self.entries, kMostShards);
}

void Finished::fields(auto& codec, auto& self) {
  codec(self.worker);
  incarnation_fields(codec, self.incarnation);
}

void Answer::fields(auto& codec, auto& self) {
  codec(self.status);
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
  if (raw.kind < 1 || prologue.kind > MessageKind::kAnswer || raw.zeros != std::array<std::uint8_t, 3>{}) {
    throw InvalidArgument(fmt::format("a message of an unknown kind ({})", raw.kind));
  }
  if (prologue.header_bytes > kLargestHeader) {
    throw InvalidArgument(fmt::format("a {} with a header of {} bytes: expected at most {}",
                                      kind_name(prologue.kind), prologue.header_bytes, kLargestHeader));
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

std::uint32_t payload_crc(const PayloadSpans& payload) {
  return crc32c(payload.values.data(), payload.values.size(),
                crc32c(payload.row_ids.data(), payload.row_ids.size()));
}

Push::Entry describe_dense(std::uint32_t shard, WireType type, std::span<const std::byte> values) {
  assert(values.size() % wire_type_bytes(type) == 0);
  return {.shard = shard,
          .kind = PayloadKind::kDense,
          .type = type,
          .count = values.size() / wire_type_bytes(type),
          .crc = payload_crc({.values = values})};
}

Push::Entry describe_rows(std::uint32_t shard, WireType type, std::span<const std::int64_t> row_ids,
                          std::span<const std::byte> values) {
  assert(!row_ids.empty() && values.size() % (row_ids.size() * wire_type_bytes(type)) == 0);
  return {.shard = shard,
          .kind = PayloadKind::kRows,
          .type = type,
          .rows = row_ids.size(),
          .count = values.size() / wire_type_bytes(type),
          .crc = payload_crc({.row_ids = std::as_bytes(row_ids), .values = values})};
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
