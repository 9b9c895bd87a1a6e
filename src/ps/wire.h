#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/membership_core.h"
#include "ps/status.h"

namespace tandem::internal::ps {

// What workers and parameter servers say to each other, as bytes:
//
//   prologue   24 bytes: kind, length of the header, length of the payload, checksum of prologue and header
//   header     the message without its tensors
//   payload    tensors, in the order of the header's entries, without holes
//
// The receiver reads the prologue, checks the lengths, reads the header, and then knows where each tensor
// goes before it has room for any: payloads are never copied, and nothing is allocated on a stranger's word.
// Numbers are little-endian. One message has one encoding: what decodes encodes to the same bytes.

enum class MessageKind : std::uint8_t {
  kHello = 1,
  kHelloReply,
  kPush,
  kPushReply,
  kPull,
  kPullReply,
  kInitialise,
  kFinished,
  kAnswer,
  kRead,
  kReadReply,
  kAssign,
};
inline constexpr MessageKind kLastKind = MessageKind::kAssign;

inline constexpr std::size_t kPrologueBytes = 24;
inline constexpr std::size_t kLongestMessageText = 1000;
inline constexpr std::uint32_t kLongestPlanText = 64 << 20;
inline constexpr std::uint32_t kLongestOptimizerText = 1 << 20;

struct Prologue {
  MessageKind kind = MessageKind::kHello;
  std::uint32_t header_bytes = 0;
  std::uint32_t crc = 0;
  std::uint64_t payload_bytes = 0;
};

// Throws InvalidArgument for what is no prologue, a header longer than the largest message has, and a payload
// longer than `most_payload`: what the receiver has room for.
Prologue parse_prologue(std::span<const std::byte, kPrologueBytes> bytes, std::uint64_t most_payload);

enum class WireType : std::uint8_t { kFloat32, kFloat64, kBfloat16 };
constexpr std::size_t wire_type_bytes(WireType type) {
  return type == WireType::kFloat64 ? 8 : type == WireType::kFloat32 ? 4 : 2;
}
const char* wire_type_name(WireType type);  // "float32"

// What travels of a shard.
enum class PayloadKind : std::uint8_t {
  kNothing,  // of a push: no gradient this time; of a pull's reply: nothing newer than what is known
  kDense,    // every value, row-major
  kRows,     // some rows: their numbers within the shard, ascending, as 64-bit integers; then their values
};

// Where the payload of one entry lies with its sender.
struct PayloadSpans {
  std::span<const std::byte> row_ids = {};
  std::span<const std::byte> values = {};
};

// A worker's process says who it is before anything else.
struct Hello {
  std::uint32_t worker = 0;
  Incarnation incarnation = {};
  std::string plan_digest = {};  // PlacementPlan::digest()
  std::uint64_t oldest_seq = 1;  // of the pushes it can still send
  std::uint64_t step = 0;        // that it would go on with; 0 for a new process

  static void fields(auto& codec, auto& self);
};

struct HelloReply {
  struct Entry {
    std::uint32_t shard = 0;
    std::uint64_t version = 0;
    std::uint64_t last_seq = 0;  // the next push is this + 1
    std::uint64_t lost = 0;      // settled once, but not in the snapshot that the ps came back with

    static constexpr std::size_t kBytes = 32;
    static void fields(auto& codec, auto& self);
  };
  Status status = Status::kApplied;
  bool resumed = false;            // the ps came back from a snapshot since it began
  std::uint64_t step = 0;          // to go on with
  std::uint64_t global_step = 0;   // counted by ps 0
  std::vector<Entry> shards = {};  // of this ps
  std::string message = {};        // why not, in one line

  static void fields(auto& codec, auto& self);
};

// The updates of one step of a worker, for some shards of one ps. A shard that a worker pushes to gets each
// of its numbers: one without a gradient travels as kNothing.
struct Push {
  struct Entry {
    std::uint32_t shard = 0;
    PayloadKind kind = PayloadKind::kNothing;
    WireType type = WireType::kFloat32;
    std::uint64_t rows = 0;   // of kRows
    std::uint64_t count = 0;  // values
    std::uint32_t crc = 0;    // CRC-32C over row numbers and values

    std::uint64_t row_id_bytes() const { return rows * sizeof(std::int64_t); }
    std::uint64_t value_bytes() const { return count * wire_type_bytes(type); }
    std::uint64_t payload_bytes() const { return row_id_bytes() + value_bytes(); }

    static constexpr std::size_t kBytes = 32;
    static void fields(auto& codec, auto& self);
  };
  std::uint32_t worker = 0;
  Incarnation incarnation = {};
  std::uint64_t seq = 0;
  std::uint64_t closure = 0;           // 0: none
  std::uint32_t closure_push = 0;      // which of its pushes
  std::uint64_t closures_settled = 0;  // the coordinator will run none below this again; 0: unknown
  std::uint64_t step = 0;
  double learning_rate = 0;
  std::vector<Entry> entries = {};  // shards ascending

  static void fields(auto& codec, auto& self);
};

struct PushReplies {
  struct Entry {
    std::uint32_t shard = 0;
    Status status = Status::kApplied;
    bool repeated = false;  // it was settled before; this is what was answered then
    std::uint64_t version = 0;
    std::uint64_t last_seq = 0;
    std::uint64_t durable_seq = 0;  // pushes up to this one survive the ps

    static constexpr std::size_t kBytes = 32;
    static void fields(auto& codec, auto& self);
  };
  std::uint64_t seq = 0;
  std::uint64_t step = 0;         // to go on with; 0: the push is not settled
  std::uint64_t global_step = 0;  // as in HelloReply, after this push
  std::vector<Entry> entries = {};
  std::string message = {};  // about the first entry that was not taken, in one line

  static void fields(auto& codec, auto& self);
};

struct Pull {
  struct Entry {
    std::uint32_t shard = 0;
    PayloadKind kind = PayloadKind::kDense;  // kDense: all of it; kRows: those of the payload
    WireType type = WireType::kFloat32;      // to answer in
    std::uint64_t rows = 0;
    std::uint64_t known_version = 0;  // 0: none. The reply is kNothing if there is no newer one
    std::uint32_t crc = 0;            // over the row numbers

    std::uint64_t payload_bytes() const { return rows * sizeof(std::int64_t); }

    static constexpr std::size_t kBytes = 32;
    static void fields(auto& codec, auto& self);
  };
  std::uint32_t worker = 0;
  Incarnation incarnation = {};
  std::uint64_t step = 0;  // for which the values are: it waits for what bounded staleness demands
  std::vector<Entry> entries = {};

  static void fields(auto& codec, auto& self);
};

struct PullReply {
  struct Entry {
    std::uint32_t shard = 0;
    Status status = Status::kApplied;
    PayloadKind kind = PayloadKind::kNothing;
    WireType type = WireType::kFloat32;
    std::uint64_t version = 0;
    std::uint64_t count = 0;  // values, in the order of the rows asked for
    std::uint32_t crc = 0;

    std::uint64_t payload_bytes() const { return count * wire_type_bytes(type); }

    static constexpr std::size_t kBytes = 32;
    static void fields(auto& codec, auto& self);
  };
  std::uint64_t global_step = 0;  // as in HelloReply, when it was answered
  std::vector<Entry> entries = {};
  std::string message = {};

  static void fields(auto& codec, auto& self);
};

// A tensor of a shard as a whole: its values, or a piece of its optimizer's state. A shard travels as its
// values, and then its state in the order of the names.
struct ShardTensor {
  std::uint32_t shard = 0;
  std::string name = {};   // empty: the values; else as StateTensor has it
  std::string dtype = {};  // as safetensors names it
  std::vector<std::int64_t> shape = {};
  std::uint32_t crc = 0;  // CRC-32C

  // 0 for a dtype or shape that cannot be.
  std::uint64_t payload_bytes() const;

  static constexpr std::size_t kBytes = 16;
  static void fields(auto& codec, auto& self);
};

// The chief's, before the first hello is admitted: what the model is, and what it begins with. The payload
// begins with two texts, the plan as JSON and what the store knows as the optimizer; the tensors follow.
struct Initialise {
  std::uint32_t worker = 0;
  Incarnation incarnation = {};
  std::uint64_t global_step = 0;
  std::uint32_t plan_bytes = 0;
  std::uint32_t optimizer_bytes = 0;
  std::uint32_t texts_crc = 0;
  // Each shard of this ps but tables, with its state if it has any.
  std::vector<ShardTensor> entries = {};

  std::uint64_t text_bytes() const { return std::uint64_t{plan_bytes} + optimizer_bytes; }

  static void fields(auto& codec, auto& self);
};

// All of one shard, as it is at one version.
struct Read {
  std::uint32_t worker = 0;
  Incarnation incarnation = {};
  std::uint32_t shard = 0;

  static void fields(auto& codec, auto& self);
};

struct ReadReply {
  Status status = Status::kApplied;
  std::uint64_t version = 0;
  std::vector<ShardTensor> entries = {};  // of this shard; none if it was refused
  std::string message = {};

  static void fields(auto& codec, auto& self);
};

// Other values and state for all shards of a ps but tables: those of a checkpoint. A shard without state is as before
// its first update.
struct Assign {
  std::uint32_t worker = 0;
  Incarnation incarnation = {};
  bool has_global_step = false;
  std::uint64_t global_step = 0;  // to count on from
  std::vector<ShardTensor> entries = {};

  static void fields(auto& codec, auto& self);
};

// A worker has done its part, and will not come back.
struct Finished {
  std::uint32_t worker = 0;
  Incarnation incarnation = {};

  static void fields(auto& codec, auto& self);
};

// To Initialise, Assign and Finished; and to bytes that are no message, before the connection is closed.
struct Answer {
  Status status = Status::kApplied;
  bool before = false;  // it was initialised by another process, and keeps what it has
  std::string message = {};

  static void fields(auto& codec, auto& self);
};

// Prologue and header; the payloads follow as they lie. Texts are cut to kLongestMessageText and made one
// line. A message that the other side would refuse is a broken invariant of ours.
std::string encode(const Hello& message);
std::string encode(const HelloReply& message);
std::string encode(const Push& message);
std::string encode(const PushReplies& message);
std::string encode(const Pull& message);
std::string encode(const PullReply& message);
std::string encode(const Initialise& message);
std::string encode(const Finished& message);
std::string encode(const Answer& message);
std::string encode(const Read& message);
std::string encode(const ReadReply& message);
std::string encode(const Assign& message);

// The message of a header that follows this prologue. Throws InvalidArgument with one line if the kind is
// another, the checksum does not fit, or a field is out of range; the entries' payloads together have then
// exactly prologue.payload_bytes.
template <typename Message>
Message decode(const Prologue& prologue, std::span<const std::byte> header);

extern template Hello decode(const Prologue&, std::span<const std::byte>);
extern template HelloReply decode(const Prologue&, std::span<const std::byte>);
extern template Push decode(const Prologue&, std::span<const std::byte>);
extern template PushReplies decode(const Prologue&, std::span<const std::byte>);
extern template Pull decode(const Prologue&, std::span<const std::byte>);
extern template PullReply decode(const Prologue&, std::span<const std::byte>);
extern template Initialise decode(const Prologue&, std::span<const std::byte>);
extern template Finished decode(const Prologue&, std::span<const std::byte>);
extern template Answer decode(const Prologue&, std::span<const std::byte>);
extern template Read decode(const Prologue&, std::span<const std::byte>);
extern template ReadReply decode(const Prologue&, std::span<const std::byte>);
extern template Assign decode(const Prologue&, std::span<const std::byte>);

// Over row numbers, then values: what an entry's crc is.
std::uint32_t payload_crc(const PayloadSpans& payload);

// What is wrong with row numbers for a shard of so many rows, e.g. "row 7 of a shard of 5 rows"; empty if
// they ascend and are all there.
std::string fault_of_rows(std::span<const std::int64_t> row_ids, std::int64_t rows);

}  // namespace tandem::internal::ps
