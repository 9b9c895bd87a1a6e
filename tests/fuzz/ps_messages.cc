// Any bytes as what a worker or a parameter server sends, as what a coordinator and its workers say, as the
// ledger of a shard in a snapshot, and as a placement plan: refused with one line, or read as something whose
// own bytes are the same.
//
// The first byte says which: 'm', a message (prologue and header); 'c', one of a coordinator (header and
// payload); 'l', a ledger; 'p', a plan. Checksums are put right before a second try, or next to nothing would
// get past them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/crc32c.h"
#include "fuzz/require.h"
#include "ps/closure_wire.h"
#include "ps/plan.h"
#include "ps/push_ledger.h"
#include "ps/wire.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using namespace tandem::internal::ps;
using fuzz::require;

constexpr std::uint64_t kRoom = std::uint64_t{1} << 36;
constexpr std::size_t kCrcAt = 12;  // in the prologue

void check_line(const Error& error, ErrorCode code) {
  const std::string line = error.what();
  require(error.code() == code, "a refusal is of its kind");
  require(line.find_first_of("\n\r\t") == std::string::npos, "a refusal is one line");
  require(line.size() < 4096, "a refusal is short");
}

template <typename Message>
void check_same(const Prologue& prologue, const std::string& bytes) {
  const auto header = std::as_bytes(std::span(bytes)).subspan(kPrologueBytes);
  const auto message = decode<Message>(prologue, header);
  require(encode(message) == bytes, "a message has one encoding");
  if constexpr (requires { message.entries[0].payload_bytes(); }) {
    std::uint64_t payload = 0;
    if constexpr (requires { message.text_bytes(); }) payload = message.text_bytes();
    for (const auto& entry : message.entries) payload += entry.payload_bytes();
    require(payload == prologue.payload_bytes && payload <= kRoom,
            "the tensors have the size that was checked");
  }
}

bool read_message(const std::string& bytes) {
  if (bytes.size() < kPrologueBytes) return false;
  try {
    const Prologue prologue = parse_prologue(std::as_bytes(std::span(bytes)).first<kPrologueBytes>(), kRoom);
    switch (prologue.kind) {
      case MessageKind::kHello:
        check_same<Hello>(prologue, bytes);
        break;
      case MessageKind::kHelloReply:
        check_same<HelloReply>(prologue, bytes);
        break;
      case MessageKind::kPush:
        check_same<Push>(prologue, bytes);
        break;
      case MessageKind::kPushReply:
        check_same<PushReplies>(prologue, bytes);
        break;
      case MessageKind::kPull:
        check_same<Pull>(prologue, bytes);
        break;
      case MessageKind::kPullReply:
        check_same<PullReply>(prologue, bytes);
        break;
      case MessageKind::kInitialise:
        check_same<Initialise>(prologue, bytes);
        break;
      case MessageKind::kFinished:
        check_same<Finished>(prologue, bytes);
        break;
      case MessageKind::kAnswer:
        check_same<Answer>(prologue, bytes);
        break;
      case MessageKind::kRead:
        check_same<Read>(prologue, bytes);
        break;
      case MessageKind::kReadReply:
        check_same<ReadReply>(prologue, bytes);
        break;
      case MessageKind::kAssign:
        check_same<Assign>(prologue, bytes);
        break;
    }
    return true;
  } catch (const InvalidArgument& error) {
    check_line(error, ErrorCode::kInvalidArgument);
    return false;
  }
}

// The length of the header and the checksum, as they should be.
std::string mended_message(std::string bytes) {
  if (bytes.size() < kPrologueBytes) return bytes;
  const auto length = static_cast<std::uint32_t>(bytes.size() - kPrologueBytes);
  std::memcpy(bytes.data() + 8, &length, sizeof length);
  std::memset(bytes.data() + kCrcAt, 0, sizeof(std::uint32_t));
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  std::memcpy(bytes.data() + kCrcAt, &crc, sizeof crc);
  return bytes;
}

// The length of the payload and both checksums, as they should be.
std::string mended_closure_message(std::string bytes) {
  if (bytes.size() < kClosureHeaderBytes) return bytes;
  const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  const std::uint64_t length = bytes.size() - kClosureHeaderBytes;
  put(24, length);
  put(32, crc32c(bytes.data() + kClosureHeaderBytes, length));
  put(36, crc32c(bytes.data(), 36));
  return bytes;
}

bool read_closure_message(const std::string& bytes) {
  if (bytes.size() < kClosureHeaderBytes) return false;
  try {
    const auto all = std::as_bytes(std::span(bytes));
    const ClosureHeader header = parse_header(all.first<kClosureHeaderBytes>());
    require(header.payload_bytes <= kMostClosureBytes + 1024, "a payload is no longer than is agreed");
    const std::string payload = bytes.substr(kClosureHeaderBytes);
    if (header.payload_bytes != payload.size()) return false;
    require(encode_header(header, payload) == mended_closure_message(bytes).substr(0, kClosureHeaderBytes),
            "a header has one encoding");
    if (header.kind == ClosureMessageKind::kReady) {
      require(encode_functions(decode_functions(payload)) == payload, "a list of functions has one encoding");
    } else if (header.kind == ClosureMessageKind::kRun) {
      require(encode_call(decode_call(payload)) == payload, "a closure has one encoding");
    } else {
      require(closure_text(payload).size() <= payload.size() + 4000, "a text is short");
    }
    return true;
  } catch (const InvalidArgument& error) {
    check_line(error, ErrorCode::kInvalidArgument);
    return false;
  }
}

bool read_ledger(const std::string& bytes) {
  try {
    PushLedger ledger = PushLedger::from_bytes(bytes);
    require(ledger.to_bytes() == bytes, "a ledger has one encoding");
    for (const PushMark& mark : ledger.marks()) {
      const PushId next{.worker = mark.worker, .incarnation = mark.incarnation, .seq = mark.last_seq + 1};
      require(ledger.decide(next).verdict == PushLedger::Verdict::kApply, "the next push is applied");
      ledger.record(next, {});
      require(ledger.decide(next).verdict == PushLedger::Verdict::kRepeat, "and then no more");
    }
    return true;
  } catch (const DataLoss& error) {
    check_line(error, ErrorCode::kDataLoss);
    return false;
  }
}

std::string mended_ledger(std::string bytes) {
  if (bytes.size() < sizeof(std::uint32_t)) return bytes;
  const std::size_t body = bytes.size() - sizeof(std::uint32_t);
  const std::uint32_t crc = crc32c(bytes.data(), body);
  std::memcpy(bytes.data() + body, &crc, sizeof crc);
  return bytes;
}

bool read_plan(const std::string& text) {
  try {
    const PlacementPlan plan = PlacementPlan::from_json(text);
    require(PlacementPlan::from_json(plan.to_json()) == plan, "a plan is the same after printing");
    std::uint64_t bytes = 0;
    if (plan.num_ps() <= 64) {
      for (int ps = 0; ps < plan.num_ps(); ++ps) bytes += plan.bytes_on(ps);
      require(bytes == plan.bytes(), "every shard is on a ps");
      require(!plan.table().empty(), "a plan can be printed");
    }
    return true;
  } catch (const InvalidArgument& error) {
    check_line(error, ErrorCode::kInvalidArgument);
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return -1;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  bool taken = false;
  if (data[0] == 'm') taken = read_message(bytes) | read_message(mended_message(bytes));
  if (data[0] == 'c')
    taken = read_closure_message(bytes) | read_closure_message(mended_closure_message(bytes));
  if (data[0] == 'l') taken = read_ledger(bytes) | read_ledger(mended_ledger(bytes));
  if (data[0] == 'p') taken = read_plan(bytes);
  return taken ? 0 : -1;
}
