#include "ps/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "base/crc32c.h"
#include "base/random.h"
#include "support/errors.h"
#include "support/push_entries.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using testing_support::message_of;

constexpr std::uint64_t kRoom = std::uint64_t{1} << 40;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Prologue prologue_of(const std::string& bytes, std::uint64_t room = kRoom) {
  return parse_prologue(bytes_of(bytes).first<kPrologueBytes>(), room);
}

template <typename Message>
Message read(const std::string& bytes) {
  return decode<Message>(prologue_of(bytes), bytes_of(bytes).subspan(kPrologueBytes));
}

const Incarnation kProcess{7, 9};

Push some_push() {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> rows{1, 4};
  return {
      .worker = 3,
      .incarnation = kProcess,
      .seq = 12,
      .closure = 5,
      .closure_push = 1,
      .closures_settled = 4,
      .step = 100,
      .learning_rate = 0.1,
      .entries = {describe_dense(0, WireType::kFloat32, std::as_bytes(std::span(values))),
                  {.shard = 2},
                  describe_rows(9, WireType::kBfloat16, rows, std::as_bytes(std::span(values)).first(12))}};
}

Pull some_pull() {
  return {.worker = 3,
          .incarnation = kProcess,
          .step = 101,
          .entries = {{.shard = 1, .type = WireType::kFloat64, .known_version = 8},
                      {.shard = 4, .kind = PayloadKind::kRows, .rows = 3, .crc = 77}}};
}

PushReplies some_push_reply() {
  return {.seq = 12,
          .step = 101,
          .entries = {{.shard = 0, .version = 40, .last_seq = 12, .durable_seq = 9},
                      {.shard = 9, .status = Status::kGap, .repeated = true, .last_seq = 3}},
          .message = "worker 3: ein Stück fehlt"};
}

PullReply some_pull_reply() {
  return {
      .entries =
          {{.shard = 1, .kind = PayloadKind::kDense, .type = WireType::kFloat64, .version = 9, .count = 5},
           {.shard = 4, .status = Status::kUnknownShard}},
      .message = "no shard 4 here"};
}

Hello some_hello() {
  return {
      .worker = 2, .incarnation = kProcess, .plan_digest = std::string(64, 'a'), .oldest_seq = 6, .step = 4};
}

HelloReply some_hello_reply() {
  return {.resumed = true, .step = 8, .shards = {{.shard = 3, .version = 30, .last_seq = 5, .lost = 2}}};
}

std::vector<ShardTensor> some_tensors() {
  return {{.shard = 2, .dtype = "F32", .shape = {3}, .crc = 9},
          {.shard = 2, .name = "exp_avg", .dtype = "F32", .shape = {3}, .crc = 8},
          {.shard = 2, .name = "step", .dtype = "I64", .crc = 7}};
}

Initialise some_initialise() {
  return {.worker = 0,
          .incarnation = kProcess,
          .global_step = 70,
          .plan_bytes = 10,
          .optimizer_bytes = 3,
          .texts_crc = 5,
          .entries = some_tensors()};
}

Assign some_assign() {
  auto tensors = some_tensors();
  tensors.push_back({.shard = 5, .dtype = "BF16", .shape = {2, 0}});
  return {
      .worker = 0, .incarnation = kProcess, .has_global_step = true, .global_step = 71, .entries = tensors};
}

ReadReply some_read_reply() {
  return {.version = 6, .entries = some_tensors()};
}

const Read kRead{.worker = 1, .incarnation = kProcess, .shard = 2};
const Finished kFinished{.worker = 4, .incarnation = kProcess};
const Answer kAnswer{.status = Status::kOtherModel, .message = "the plans differ"};

TEST(Wire, APushComesBackAsItWas) {
  const Push push = some_push();
  const std::string bytes = encode(push);
  EXPECT_EQ(prologue_of(bytes).payload_bytes, 6u * 4 + 2 * 8 + 6 * 2);
  const Push back = read<Push>(bytes);
  EXPECT_EQ(back.worker, 3u);
  EXPECT_EQ(back.incarnation, kProcess);
  EXPECT_EQ(back.seq, 12u);
  EXPECT_EQ(back.closure, 5u);
  EXPECT_EQ(back.closure_push, 1u);
  EXPECT_EQ(back.closures_settled, 4u);
  EXPECT_EQ(back.step, 100u);
  EXPECT_EQ(back.learning_rate, 0.1);
  ASSERT_EQ(back.entries.size(), 3u);
  EXPECT_EQ(back.entries[0].count, 6u);
  EXPECT_EQ(back.entries[1].kind, PayloadKind::kNothing);
  EXPECT_EQ(back.entries[2].kind, PayloadKind::kRows);
  EXPECT_EQ(back.entries[2].type, WireType::kBfloat16);
  EXPECT_EQ(back.entries[2].row_id_bytes(), 16u);
  EXPECT_EQ(back.entries[2].value_bytes(), 12u);
  EXPECT_EQ(back.entries[2].crc, push.entries[2].crc);
  EXPECT_EQ(encode(back), bytes);
}

TEST(Wire, EveryMessageHasOneEncoding) {
  EXPECT_EQ(encode(read<Hello>(encode(some_hello()))), encode(some_hello()));
  EXPECT_EQ(encode(read<HelloReply>(encode(some_hello_reply()))), encode(some_hello_reply()));
  EXPECT_EQ(encode(read<Pull>(encode(some_pull()))), encode(some_pull()));
  EXPECT_EQ(encode(read<PullReply>(encode(some_pull_reply()))), encode(some_pull_reply()));
  EXPECT_EQ(encode(read<PushReplies>(encode(some_push_reply()))), encode(some_push_reply()));
  EXPECT_EQ(read<PushReplies>(encode(some_push_reply())).entries[1].repeated, true);
  EXPECT_EQ(read<PushReplies>(encode(some_push_reply())).message, "worker 3: ein Stück fehlt");
  EXPECT_EQ(read<HelloReply>(encode(some_hello_reply())).shards[0].lost, 2u);
  EXPECT_EQ(encode(read<Initialise>(encode(some_initialise()))), encode(some_initialise()));
  EXPECT_EQ(encode(read<Finished>(encode(kFinished))), encode(kFinished));
  EXPECT_EQ(encode(read<Answer>(encode(kAnswer))), encode(kAnswer));
  EXPECT_EQ(encode(read<Read>(encode(kRead))), encode(kRead));
  EXPECT_EQ(encode(read<ReadReply>(encode(some_read_reply()))), encode(some_read_reply()));
  EXPECT_EQ(encode(read<Assign>(encode(some_assign()))), encode(some_assign()));
  EXPECT_EQ(read<Assign>(encode(some_assign())).entries[1].name, "exp_avg");
  EXPECT_EQ(read<Assign>(encode(some_assign())).entries[3].shape, (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(prologue_of(encode(some_assign())).payload_bytes, 12u + 12 + 8);
  EXPECT_EQ(read<Answer>(encode(kAnswer)).message, "the plans differ");
  EXPECT_EQ(prologue_of(encode(some_initialise())).payload_bytes, 10u + 3 + 12 + 12 + 8);
  EXPECT_EQ(prologue_of(encode(some_pull())).payload_bytes, 24u);
  EXPECT_EQ(prologue_of(encode(some_pull_reply())).payload_bytes, 40u);
}

template <typename Message>
void expect_damage_is_found(const std::string& bytes) {
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_THROW(read<Message>(damaged), InvalidArgument) << bit;
  }
  for (std::size_t length = kPrologueBytes; length < bytes.size(); ++length) {
    EXPECT_THROW(read<Message>(bytes.substr(0, length)), InvalidArgument);
  }
  EXPECT_THROW(read<Message>(bytes + '\0'), InvalidArgument);
}

TEST(Wire, EveryWrongBitIsFound) {
  expect_damage_is_found<Hello>(encode(some_hello()));
  expect_damage_is_found<HelloReply>(encode(some_hello_reply()));
  expect_damage_is_found<Push>(encode(some_push()));
  expect_damage_is_found<PushReplies>(encode(some_push_reply()));
  expect_damage_is_found<Pull>(encode(some_pull()));
  expect_damage_is_found<PullReply>(encode(some_pull_reply()));
  expect_damage_is_found<Initialise>(encode(some_initialise()));
  expect_damage_is_found<Finished>(encode(kFinished));
  expect_damage_is_found<Answer>(encode(kAnswer));
  expect_damage_is_found<Read>(encode(kRead));
  expect_damage_is_found<ReadReply>(encode(some_read_reply()));
  expect_damage_is_found<Assign>(encode(some_assign()));
}

TEST(Wire, SizesAreCheckedBeforeAnythingIsAllocated) {
  const std::string bytes = encode(some_push());
  EXPECT_EQ(message_of<InvalidArgument>([&] { prologue_of(bytes, 51); }),
            "a push with 52 bytes of tensors: expected at most 51");
  const auto with = [&](std::size_t at, std::uint32_t value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return message_of<InvalidArgument>([&] { prologue_of(changed); });
  };
  EXPECT_EQ(with(8, 0xffffffff), "a push with a header of 4294967295 bytes: expected at most 8392704");
  EXPECT_EQ(with(4, 99), "a message of an unknown kind (99)");
  EXPECT_EQ(with(4, 0x103), "a message of an unknown kind (3)") << "bytes that mean nothing are zero";
  EXPECT_EQ(with(0, 0x20544547), "not a message of a parameter server");  // "GET "
}

// Changes that a correct checksum covers: somebody who speaks the protocol, but lies.
template <typename Message>
std::string refusal(Message message, std::size_t at, std::vector<std::uint8_t> value) {
  std::string bytes = encode(message);
  std::copy(value.begin(), value.end(), bytes.begin() + static_cast<std::ptrdiff_t>(kPrologueBytes + at));
  std::memset(bytes.data() + 12, 0, 4);
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  std::memcpy(bytes.data() + 12, &crc, sizeof crc);
  return message_of<InvalidArgument>([&] { read<Message>(bytes); });
}

TEST(Wire, APushThatCannotBeIsRefused) {
  const auto refused = [](std::size_t at, std::vector<std::uint8_t> value) {
    return refusal(some_push(), at, value);
  };
  constexpr std::size_t kCount = 64;
  constexpr std::size_t kEntry = kCount + 4;
  const std::vector<std::uint8_t> huge(8, 0xff);
  const std::string begin = "a push is refused: ";
  EXPECT_EQ(refused(2, {1}), begin + "the worker's number is too large");
  EXPECT_EQ(refused(4, std::vector<std::uint8_t>(16, 0)), begin + "the worker has no incarnation");
  EXPECT_EQ(refused(20, std::vector<std::uint8_t>(8, 0)), begin + "a number is too large, or seq is 0");
  EXPECT_EQ(refused(28, huge), begin + "a number is too large, or seq is 0");
  EXPECT_EQ(refused(36, {0, 4}), begin + "a closure has too many pushes");
  EXPECT_EQ(refused(kCount - 2, {0xf0, 0x7f}), begin + "the learning rate is not finite");
  EXPECT_EQ(refused(kCount, {4}), begin + "it ends too early");
  EXPECT_EQ(refused(kCount, {2}), begin + "there are bytes behind its end");
  EXPECT_EQ(refused(kCount, {0xff, 0xff, 0xff, 0xff}), begin + "a list has too many entries");
  EXPECT_EQ(refused(kEntry, {2}), begin + "the shards do not ascend");
  EXPECT_EQ(refused(kEntry + 64 + 2, {0xff}), begin + "a shard's number is too large");
  EXPECT_EQ(refused(kEntry + 4, {3}), begin + "an entry is of an unknown kind");
  EXPECT_EQ(refused(kEntry + 4, {0}), begin + "an entry without payload has a size");
  EXPECT_EQ(refused(kEntry + 4, {2}), begin + "an entry's values are not whole rows");
  EXPECT_EQ(refused(kEntry + 5, {3}), begin + "an entry is of an unknown type");
  EXPECT_EQ(refused(kEntry + 6, {1}), begin + "bytes that mean nothing are not zero");
  EXPECT_EQ(refused(kEntry + 8, {1}), begin + "a dense entry has rows");
  EXPECT_EQ(refused(kEntry + 16, huge), begin + "an entry is too large");
  EXPECT_EQ(refused(kEntry + 16, {7}), begin + "its tensors have another size");
  EXPECT_EQ(refused(kEntry + 64 + 8, {4}), begin + "an entry's values are not whole rows");
}

TEST(Wire, OtherMessagesThatCannotBeAreRefused) {
  EXPECT_EQ(refusal(some_hello(), 20, {'A'}), "a hello is refused: the plan's digest is none");
  EXPECT_EQ(refusal(some_hello(), 84, {0}), "a hello is refused: a number is too large");
  EXPECT_EQ(refusal(some_hello_reply(), 0, {99}), "a hello reply is refused: the status is unknown");
  EXPECT_EQ(refusal(some_hello_reply(), 1, {2}), "a hello reply is refused: a flag is neither 0 nor 1");
  EXPECT_EQ(refusal(some_hello_reply(), 22 + 24, {6}),
            "a hello reply is refused: an entry's numbers cannot be");
  EXPECT_EQ(refusal(some_push_reply(), 28 + 4, {99}),
            "a push reply is refused: an entry has an unknown status");
  EXPECT_EQ(refusal(some_push_reply(), 28 + 24, {13}),
            "a push reply is refused: an entry's numbers cannot be");
  EXPECT_EQ(refusal(some_push_reply(), 28 + 64 + 2, {'\n'}),
            "a push reply is refused: the text is not one line");
  EXPECT_EQ(refusal(some_push_reply(), 28 + 64, {0xff, 0xff}), "a push reply is refused: a text is too long");
  EXPECT_EQ(refusal(some_pull(), 32 + 4, {0}), "a pull is refused: an entry is of an unknown kind");
  EXPECT_EQ(refusal(some_pull(), 32 + 8, {1}), "a pull is refused: a dense entry has rows");
  EXPECT_EQ(refusal(some_pull(), 32 + 32 + 8, {0}), "a pull is refused: an entry has no rows or too many");
  EXPECT_EQ(refusal(some_pull_reply(), 8 + 4 + 4, {1}),
            "a pull reply is refused: an entry that was refused has values");
}

TEST(Wire, TensorsOfShardsThatCannotBeAreRefused) {
  const auto refused = [](std::size_t at, std::vector<std::uint8_t> value) {
    return refusal(some_assign(), at, value);
  };
  constexpr std::size_t kCount = 29;
  constexpr std::size_t kFirst = kCount + 4;    // values: 27 bytes
  constexpr std::size_t kSecond = kFirst + 27;  // "exp_avg": 34 bytes
  const std::string begin = "a shard assignment is refused: ";
  EXPECT_EQ(refused(20, {2}), begin + "a flag is neither 0 nor 1");
  EXPECT_EQ(refused(20, {0}), begin + "a number is too large");
  EXPECT_EQ(refused(kCount, {0xff, 0xff, 0xff, 0xff}), begin + "a list has too many entries");
  EXPECT_EQ(refused(kCount, {0xff, 0xff, 0x0f, 0}), begin + "it ends too early");
  EXPECT_EQ(refused(kFirst, {3}), begin + "the tensors do not ascend");
  EXPECT_EQ(refused(kFirst, {1}), begin + "a shard does not begin with its values");
  EXPECT_EQ(refused(kFirst + 4, {0xff, 0xff}), begin + "a text is too long");
  EXPECT_EQ(refused(kFirst + 8, {'X'}), begin + "a tensor's dtype or shape cannot be");
  EXPECT_EQ(refused(kFirst + 15, std::vector<std::uint8_t>(8, 0xff)),
            begin + "a tensor's dtype or shape cannot be");
  EXPECT_EQ(refused(kFirst + 15, {4}), begin + "its tensors have another size");
  EXPECT_EQ(refused(kFirst + 11, {65}), begin + "a list has too many entries");
  EXPECT_EQ(refused(kSecond + 6, {'/'}), begin + "a tensor's name is none");
  EXPECT_EQ(refused(kSecond + 6, {'z'}), begin + "the tensors do not ascend");
  EXPECT_EQ(refusal(some_read_reply(), 0, {static_cast<std::uint8_t>(Status::kUnknownShard)}),
            "a read reply is refused: a shard that was refused has tensors, or another has none");
  EXPECT_EQ(refusal(kRead, 22, {0xff}), "a read is refused: a shard's number is too large");
}

TEST(Wire, AMessageOfAnotherKindIsRefused) {
  const std::string bytes = encode(some_pull());
  EXPECT_EQ(message_of<InvalidArgument>([&] { read<Push>(bytes); }),
            "a push is refused: another kind of message came");
}

TEST(Wire, TextsBecomeOneShortLine) {
  PushReplies reply = some_push_reply();
  reply.message = "first\nsecond\t\xff";
  EXPECT_EQ(read<PushReplies>(encode(reply)).message, "first second \xef\xbf\xbd");
  for (const char* letter : {"x", "ü", "€", "\xff"}) {
    reply.message = "o";
    while (reply.message.size() < 3000) reply.message += letter;
    const std::string text = read<PushReplies>(encode(reply)).message;
    EXPECT_LE(text.size(), kLongestMessageText);
    EXPECT_GE(text.size(), kLongestMessageText - 4);
  }
}

TEST(Wire, TheChecksumOfAnEntryCoversRowsAndValues) {
  const std::vector<std::int64_t> rows{0, 2};
  std::vector<double> values{1, 2, 3, 4};
  const Push::Entry entry = describe_rows(1, WireType::kFloat64, rows, std::as_bytes(std::span(values)));
  const auto crc = [&](const std::vector<std::int64_t>& ids) {
    return payload_crc({std::as_bytes(std::span(ids)), std::as_bytes(std::span(values))});
  };
  EXPECT_EQ(entry.crc, crc(rows));
  EXPECT_NE(entry.crc, crc({0, 3}));
  values[3] = 5;
  EXPECT_NE(entry.crc, crc(rows));
  EXPECT_EQ(entry.payload_bytes(), 16u + 32u);
}

TEST(Wire, RowsMustAscendAndExist) {
  EXPECT_EQ(fault_of_rows(std::vector<std::int64_t>{0, 1, 4}, 5), "");
  EXPECT_EQ(fault_of_rows(std::vector<std::int64_t>{5}, 5), "row 5 of a shard of 5 rows");
  EXPECT_EQ(fault_of_rows(std::vector<std::int64_t>{-1}, 5), "row -1 of a shard of 5 rows");
  EXPECT_EQ(fault_of_rows(std::vector<std::int64_t>{1, 1}, 5),
            "row 1 after row 1: expected ascending numbers");
  EXPECT_EQ(fault_of_rows({}, 5), "");
}

TEST(Wire, RandomPushesComeBackAsTheyWere) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::uint64_t draw = 0;
    const auto below = [&](std::uint64_t n) { return seed_of_stream(seed, ++draw) % n; };
    Push push{.worker = static_cast<std::uint32_t>(below(1000)),
              .incarnation = {below(9), 1 + below(9)},
              .seq = 1 + below(1ull << 40),
              .closure = 1 + below(1ull << 40),
              .closure_push = static_cast<std::uint32_t>(below(8)),
              .step = below(1ull << 40),
              .learning_rate = static_cast<double>(below(100)) / 7};
    std::uint64_t payload = 0;
    std::uint32_t shard = 0;
    for (std::uint64_t left = 1 + below(40); left > 0; --left) {
      Push::Entry entry{.shard = shard,
                        .kind = static_cast<PayloadKind>(below(3)),
                        .type = static_cast<WireType>(below(3))};
      if (entry.kind == PayloadKind::kRows) entry.rows = 1 + below(100);
      if (entry.kind != PayloadKind::kNothing) {
        entry.count = std::max<std::uint64_t>(entry.rows, 1) * below(1000);
        entry.crc = static_cast<std::uint32_t>(below(1ull << 32));
      }
      payload += entry.payload_bytes();
      push.entries.push_back(entry);
      shard += 1 + static_cast<std::uint32_t>(below(1000));
    }
    const std::string bytes = encode(push);
    ASSERT_EQ(prologue_of(bytes).payload_bytes, payload);
    ASSERT_EQ(encode(read<Push>(bytes)), bytes) << seed;
  }
}

}  // namespace
}  // namespace tandem::internal::ps
