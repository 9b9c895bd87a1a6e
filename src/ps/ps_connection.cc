#include "ps/ps_connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/crc32c.h"
#include "base/log.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

constexpr std::chrono::milliseconds kHandshakePatience{2000};
// Others have their turn after so many bytes.
constexpr std::size_t kTurn = std::size_t{8} << 20;
// At once from a socket: small enough to be in the cache still when it is summed.
constexpr std::size_t kReadBlock = std::size_t{256} << 10;
constexpr int kMostParts = 64;
constexpr std::chrono::milliseconds kLinger{1000};

// The other end vanishes without a word when its machine does.
void detect_dead_peer(int socket) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Room in which an entry of a push is staged: rows, values in the shard's type, and in front of those what
// came in 16 bits.
std::size_t staged_bytes(const Push::Entry& entry, WireType type) {
  const std::size_t widened = entry.type == type ? 0 : entry.count * wire_type_bytes(type);
  return entry.payload_bytes() + widened;
}

std::span<const std::int64_t> as_rows(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::int64_t*>(bytes.data()), bytes.size() / sizeof(std::int64_t)};
}

}  // namespace

PsConnection::PsConnection(PsState& state, std::uint64_t serial, FileDescriptor socket,
                           const tcp::Encryption* encryption)
    : state_(state), serial_(serial), last_progress_(Clock::now()) {
  detect_dead_peer(socket.get());
  handshake_ = std::make_unique<tcp::Handshake>(
      tcp::Handshake::answer(tcp::Channel(std::move(socket), encryption, true), state.identity,
                             static_cast<std::uint32_t>(state.options.ps)));
}

PsConnection::~PsConnection() {
  state_.staging.forget(this);
  {
    const std::lock_guard lock(state_.initialising);
    if (state_.initialiser == this) state_.initialiser = nullptr;
  }
  if (worker_) state_.roll.lost(*worker_, serial_, Clock::now() + state_.options.worker_grace);
}

int PsConnection::descriptor() const {
  return handshake_ ? handshake_->descriptor() : channel_.descriptor();
}

short PsConnection::events() const {
  if (handshake_) return handshake_->events();
  if (parked_) return POLLRDHUP;
  return stage_ == Stage::kWrite ? POLLOUT : POLLIN;
}

PsConnection::Clock::time_point PsConnection::deadline() const {
  if (handshake_) return last_progress_ + kHandshakePatience;
  if (close_after_write_) return linger_until_;
  const bool idle = parked_ || (stage_ == Stage::kPrologue && filled_ == 0);
  return idle ? Clock::time_point::max() : last_progress_ + state_.options.stall;
}

std::string PsConnection::who() const {
  return fmt::format("worker {}", worker_ ? *worker_ : static_cast<int>(member_ - kFirstWorkerMember));
}

bool PsConnection::advance(Clock::time_point now) {
  now_ = now;
  parked_ = false;
  eager_ = false;
  turn_bytes_ = 0;
  try {
    while (run()) {
    }
    if (!parked_ && stage_ != Stage::kWrite && stage_ != Stage::kHandshake && channel_.has_unread()) {
      eager_ = true;
    }
    return true;
  } catch (const tcp::ChannelClosed& closed) {
    if (handshake_) {
      // One line, whoever knocks and how often.
      if (state_.turned_away++ == 0) {
        log_info("ps {}: a connection was turned away: it {}", state_.options.ps, closed.what());
      }
    }
    return false;
  } catch (const InvalidArgument& error) {
    // Where the next message begins is not known any more.
    ++state_.refused;
    log_warning("ps {}: {} sends what cannot be read, and is disconnected: {}", state_.options.ps, who(),
                error.what());
    answer(Status::kMalformed, error.what());
    close_after_write_ = true;
    linger_until_ = now + kLinger;
    return true;
  } catch (const std::exception& error) {
    // Memory, most likely. It is this peer's message that asked for it.
    log_warning("ps {}: {} is disconnected: {}", state_.options.ps, who(), error.what());
    return false;
  }
}

bool PsConnection::run() {
  switch (stage_) {
    case Stage::kHandshake:
      if (!handshake_->step()) return false;
      member_ = handshake_->peer();
      channel_ = handshake_->take();
      handshake_.reset();
      if (member_ < kFirstWorkerMember) throw tcp::ChannelClosed("is no worker");
      last_progress_ = now_;
      stage_ = Stage::kPrologue;
      return true;
    case Stage::kPrologue:
      if (!close_after_write_) return read_prologue();
      // A connection that is closed with bytes unread takes the answer with it.
      channel_.finish();
      skip_then(std::numeric_limits<std::uint64_t>::max(), Stage::kSkip);
      return true;
    case Stage::kHeader:
      return read_header();
    case Stage::kTexts:
      return read_texts();
    case Stage::kFirstValues:
      return read_first_values();
    case Stage::kFirstSnapshot:
      return await_ready();
    case Stage::kPushEntry:
      return begin_entry();
    case Stage::kPushPayload:
      return read_payload();
    case Stage::kPushReply:
      return finish_push();
    case Stage::kPullBegin:
      return begin_pull();
    case Stage::kPullRows:
      return read_rows();
    case Stage::kSkip:
      return skip();
    case Stage::kWrite:
      return write();
  }
  return false;
}

bool PsConnection::park() {
  parked_ = true;
  return false;
}

bool PsConnection::fill(std::span<std::byte> bytes, std::size_t& filled, std::uint32_t* crc) {
  while (filled < bytes.size()) {
    if (turn_bytes_ >= kTurn) {
      eager_ = true;
      return false;
    }
    const std::size_t got = channel_.read(bytes.data() + filled, std::min(kReadBlock, bytes.size() - filled));
    if (got == 0) return false;
    if (crc) *crc = crc32c(bytes.data() + filled, got, *crc);
    filled += got;
    turn_bytes_ += got;
    state_.bytes_in += got;
    last_progress_ = now_;
  }
  return true;
}

bool PsConnection::read_prologue() {
  if (!fill(prologue_bytes_, filled_)) return false;
  // Dense and with every row's number, twice over: more than any honest message has.
  const std::uint64_t most =
      state_.ready ? 8 * state_.table.plan().bytes_on(state_.options.ps) + (std::uint64_t{16} << 20)
                   : kMostElements;
  prologue_ = parse_prologue(prologue_bytes_, most);
  if (state_.ready && prologue_.header_bytes > 4096 + 64 * state_.table.plan().shards().size()) {
    throw InvalidArgument(fmt::format("a header of {} bytes, for a model of {} shards",
                                      prologue_.header_bytes, state_.table.plan().shards().size()));
  }
  header_.resize(prologue_.header_bytes);
  filled_ = 0;
  stage_ = Stage::kHeader;
  return true;
}

bool PsConnection::read_header() {
  if (!fill(header_, filled_)) return false;
  filled_ = 0;
  crc_ = 0;
  message_.clear();
  switch (prologue_.kind) {
    case MessageKind::kHello:
      on_hello(decode<Hello>(prologue_, header_));
      return true;
    case MessageKind::kFinished:
      on_finished(decode<Finished>(prologue_, header_));
      return true;
    case MessageKind::kInitialise:
      initialise_ = decode<Initialise>(prologue_, header_);
      texts_.clear();
      stage_ = Stage::kTexts;
      return true;
    case MessageKind::kPush:
      push_ = decode<Push>(prologue_, header_);
      entry_ = 0;
      refused_.assign(push_.entries.size(), std::nullopt);
      fresh_.assign(push_.entries.size(), false);
      stage_ = Stage::kPushEntry;
      return true;
    case MessageKind::kPull:
      pull_ = decode<Pull>(prologue_, header_);
      stage_ = Stage::kPullBegin;
      return true;
    default:
      throw InvalidArgument("a message that only a ps sends");
  }
}

bool PsConnection::skip() {
  std::array<std::byte, 16384> unwanted;
  while (skip_ > 0) {
    if (turn_bytes_ >= kTurn) {
      eager_ = true;
      return false;
    }
    const std::size_t got = channel_.read(unwanted.data(), std::min<std::uint64_t>(unwanted.size(), skip_));
    if (got == 0) return false;
    skip_ -= got;
    turn_bytes_ += got;
    state_.bytes_in += got;
    last_progress_ = now_;
  }
  stage_ = after_skip_;
  return true;
}

void PsConnection::skip_then(std::uint64_t bytes, Stage then) {
  skip_ = bytes;
  after_skip_ = then;
  stage_ = Stage::kSkip;
}

void PsConnection::reply(std::string header) {
  out_header_ = std::move(header);
  written_ = 0;
  filled_ = 0;
  stage_ = Stage::kWrite;
}

void PsConnection::answer(Status status, const std::string& message) {
  out_copies_.clear();
  reply(encode(Answer{.status = status, .message = message}));
}

bool PsConnection::write() {
  while (true) {
    std::array<iovec, kMostParts> parts;
    int count = 0;
    std::size_t offset = written_;
    const auto add = [&](const void* data, std::size_t bytes) {
      if (count == kMostParts) return;
      parts[static_cast<std::size_t>(count++)] = {
          const_cast<std::byte*>(static_cast<const std::byte*>(data)) + offset, bytes - offset};
      offset = 0;
    };
    if (!out_header_.empty()) add(out_header_.data(), out_header_.size());
    for (const auto& copy : out_copies_) add(copy->buffer.bytes().data(), copy->buffer.bytes().size());
    if (count == 0) break;
    std::size_t moved = channel_.write(parts.data(), count);
    if (moved == 0) return false;
    state_.bytes_out += moved;
    last_progress_ = now_;
    moved += written_;
    if (!out_header_.empty() && moved >= out_header_.size()) {
      moved -= out_header_.size();
      out_header_.clear();
    }
    while (out_header_.empty() && !out_copies_.empty() &&
           moved >= out_copies_.front()->buffer.bytes().size()) {
      moved -= out_copies_.front()->buffer.bytes().size();
      out_copies_.pop_front();
    }
    written_ = moved;
  }
  written_ = 0;
  stage_ = Stage::kPrologue;
  return true;
}

// Hello, Finished

void PsConnection::on_hello(const Hello& hello) {
  HelloReply reply_message{.resumed = state_.resumed};
  const auto refuse = [&](Status status, std::string text) {
    reply_message.status = status;
    reply_message.message = std::move(text);
    if (status != Status::kNotReady) ++state_.refused;
    reply(encode(reply_message));
  };
  if (hello.worker + kFirstWorkerMember != member_) {
    return refuse(Status::kMalformed, fmt::format("worker {} says that it is worker {}",
                                                  member_ - kFirstWorkerMember, hello.worker));
  }
  if (!state_.ready) {
    return refuse(Status::kNotReady, fmt::format("ps {} waits for the chief", state_.options.ps));
  }
  if (hello.plan_digest != state_.table.digest()) {
    return refuse(Status::kOtherModel,
                  fmt::format("worker {} has another model than ps {}: its plan has the digest {}, expected "
                              "{}; start all tasks with the same program and flags",
                              hello.worker, state_.options.ps, hello.plan_digest.substr(0, 16),
                              state_.table.digest().substr(0, 16)));
  }
  const int worker = static_cast<int>(hello.worker);
  reply_message.shards = state_.table.admit(worker, hello.incarnation, hello.oldest_seq);
  if (reply_message.shards.empty() && !state_.table.ids().empty()) {
    return refuse(Status::kNotAdmitted,
                  fmt::format("a newer process of worker {} has taken its place", worker));
  }
  reply_message.step = state_.roll.arrive(worker, hello.incarnation, hello.step, serial_);
  reply_message.global_step = state_.global_step();
  worker_ = worker;
  incarnation_ = hello.incarnation;
  pulled_at_ = state_.table.updates();
  reply(encode(reply_message));
  state_.changed();
}

void PsConnection::on_finished(const Finished& finished) {
  if (!is_admitted(finished.worker, finished.incarnation)) {
    return answer(Status::kNotAdmitted, "a worker finishes that did not say hello");
  }
  state_.roll.finished(*worker_);
  worker_.reset();
  answer(Status::kApplied, {});
  if (state_.options.staleness) {
    state_.table.settle_whole_steps();
    state_.changed();
  }
}

bool PsConnection::is_admitted(std::uint32_t worker, const Incarnation& incarnation) const {
  return worker_ && static_cast<std::uint32_t>(*worker_) == worker && incarnation == incarnation_ &&
         state_.roll.is_current(*worker_, serial_);
}

// Initialise

bool PsConnection::read_texts() {
  const std::size_t whole = initialise_.text_bytes();
  while (filled_ < whole) {
    // Room for what has come, not for what was promised.
    texts_.resize(std::min(whole, filled_ + kReadBlock));
    if (!fill(std::as_writable_bytes(std::span(texts_)), filled_)) return false;
  }
  on_initialise();
  return true;
}

void PsConnection::on_initialise() {
  std::uint64_t rest = 0;
  for (const Push::Entry& entry : initialise_.entries) rest += entry.payload_bytes();
  const auto refuse = [&](Status status, const std::string& text) {
    if (status != Status::kApplied && status != Status::kNotReady) ++state_.refused;
    answer(status, text);
    skip_then(rest, Stage::kWrite);
  };
  const std::string_view plan_text = std::string_view(texts_).substr(0, initialise_.plan_bytes);
  const std::string optimizer = texts_.substr(initialise_.plan_bytes);
  if (crc32c(texts_.data(), texts_.size()) != initialise_.texts_crc) {
    return refuse(Status::kDamaged, "the plan is damaged on the way");
  }
  const int ps = state_.options.ps;
  try {
    const PlacementPlan plan = PlacementPlan::from_json(plan_text);
    const std::lock_guard lock(state_.initialising);
    if (state_.ready) {
      if (plan.digest() != state_.table.digest()) {
        return refuse(Status::kOtherModel,
                      plan_difference(plan.canonical(), who(), state_.table.plan().canonical(),
                                      fmt::format("ps {}", ps)));
      }
      if (optimizer != state_.table.optimizer()) {
        return refuse(Status::kOtherModel,
                      fmt::format("ps {} was initialised with the optimizer \"{}\", {} has \"{}\"", ps,
                                  state_.table.optimizer().substr(0, 200), who(), optimizer.substr(0, 200)));
      }
      return refuse(Status::kApplied, "it was initialised before");
    }
    if (state_.initialiser || state_.filled)
      return refuse(Status::kNotReady, "another chief initialises it just now");
    if (ps >= plan.num_ps()) {
      return refuse(Status::kOtherModel, fmt::format("this is ps {}: the plan has {}", ps, plan.num_ps()));
    }
    const std::vector<std::size_t> ids = plan.shards_on(ps);
    const bool all_there = std::ranges::equal(ids, initialise_.entries, {}, {},
                                              [](const Push::Entry& entry) { return entry.shard; });
    if (!all_there) return refuse(Status::kMalformed, "the values are of other shards than the plan's");
    state_.table.create(plan, ps, optimizer);
    for (const Push::Entry& entry : initialise_.entries) {
      auto fault = state_.table.check(entry);
      if (!fault && entry.type != state_.table.type(entry.shard)) {
        fault = {Status::kMalformed, "first values come in full width"};
      }
      if (fault) return refuse(fault.status, fault.message);
    }
    state_.initialiser = this;
  } catch (const std::exception& error) {
    return refuse(Status::kMalformed, error.what());
  }
  entry_ = 0;
  filled_ = 0;
  crc_ = 0;
  stage_ = Stage::kFirstValues;
}

bool PsConnection::read_first_values() {
  for (; entry_ < initialise_.entries.size(); ++entry_) {
    const Push::Entry& entry = initialise_.entries[entry_];
    if (!fill(state_.table.memory(entry.shard), filled_, &crc_)) return false;
    if (crc_ != entry.crc) message_ = fmt::format("the values of shard {} are damaged", entry.shard);
    filled_ = 0;
    crc_ = 0;
  }
  const std::lock_guard lock(state_.initialising);
  state_.initialiser = nullptr;
  if (!message_.empty()) {
    answer(Status::kDamaged, message_);
    return true;
  }
  log_info("ps {}: {} shards, {:.1f} MB", state_.options.ps, state_.table.ids().size(),
           static_cast<double>(state_.table.plan().bytes_on(state_.options.ps)) / 1e6);
  if (state_.options.snapshot_folder.empty()) {
    state_.set_ready();
    state_.changed();
  } else {
    state_.filled = true;
  }
  stage_ = Stage::kFirstSnapshot;
  return true;
}

bool PsConnection::await_ready() {
  if (!state_.ready) return park();
  answer(Status::kApplied, {});
  return true;
}

// Push

void PsConnection::refuse_entry(Status status, const std::string& message) {
  if (message_.empty()) message_ = fmt::format("ps {}: {}", state_.options.ps, message);
  refused_[entry_] = {.shard = push_.entries[entry_].shard, .status = status};
}

bool PsConnection::begin_entry() {
  if (entry_ == push_.entries.size()) {
    stage_ = Stage::kPushReply;
    return true;
  }
  const Push::Entry& entry = push_.entries[entry_];
  filled_ = 0;
  crc_ = 0;
  const auto discard = [&] {
    ++entry_;
    skip_then(entry.payload_bytes(), Stage::kPushEntry);
    return true;
  };
  if (!is_admitted(push_.worker, push_.incarnation)) {
    refuse_entry(Status::kNotAdmitted, "this process did not say hello, or a newer one did");
    return discard();
  }
  if (const auto fault = state_.table.check(entry)) {
    refuse_entry(fault.status, fault.message);
    return discard();
  }
  switch (state_.table.begin(push_, entry)) {
    case ShardTable::Go::kWait:
      return park();
    case ShardTable::Go::kDiscard:
      return discard();
    case ShardTable::Go::kEarly:
      refuse_entry(Status::kMalformed, fmt::format("a push for step {}, which has not begun", push_.step));
      return discard();
    case ShardTable::Go::kTake:
      break;
  }
  fresh_[entry_] = true;
  const std::size_t size = staged_bytes(entry, state_.table.type(entry.shard));
  auto buffers = state_.staging.try_take(this, std::span(&size, 1));
  if (!buffers) return park();
  staged_ = std::move(buffers->front());
  stage_ = Stage::kPushPayload;
  return true;
}

bool PsConnection::read_payload() {
  const Push::Entry& entry = push_.entries[entry_];
  const std::span<std::byte> all = staged_.bytes();
  // Rows, then values; what came in 16 bits lies at the end and is widened to where it belongs.
  const std::size_t widened = all.size() - entry.payload_bytes();
  const std::size_t row_bytes = entry.row_id_bytes();
  if (filled_ < row_bytes && !fill(all.first(row_bytes), filled_, &crc_)) return false;
  std::size_t values_filled = filled_ - row_bytes;
  const bool done = fill(all.subspan(row_bytes + widened), values_filled, &crc_);
  filled_ = row_bytes + values_filled;
  if (!done) return false;
  payload_is_here();
  staged_ = {};
  ++entry_;
  stage_ = Stage::kPushEntry;
  return true;
}

void PsConnection::payload_is_here() {
  const Push::Entry& entry = push_.entries[entry_];
  const std::span<std::byte> all = staged_.bytes();
  const std::string name = state_.table.plan().shard_name(entry.shard);
  if (crc_ != entry.crc) {
    return refuse_entry(
        Status::kDamaged,
        fmt::format("the gradient of {} has the crc32c {:08x}, expected {:08x}", name, crc_, entry.crc));
  }
  const auto row_ids = as_rows(all.first(entry.row_id_bytes()));
  const auto& shard = state_.table.plan().shards()[entry.shard];
  if (const std::string fault = fault_of_rows(row_ids, shard.rows()); !fault.empty()) {
    return refuse_entry(Status::kMalformed, fmt::format("{}: {}", name, fault));
  }
  std::span<std::byte> values = all.subspan(entry.row_id_bytes());
  if (const std::size_t widened = all.size() - entry.payload_bytes(); widened > 0) {
    from_bfloat16(values.subspan(widened), values.first(widened));
    values = values.first(widened);
  }
  state_.table.add(push_, entry, row_ids, values);
  if (state_.options.staleness) state_.changed();
}

bool PsConnection::finish_push() {
  PushReplies replies{.seq = push_.seq};
  bool all_settled = true;
  for (std::size_t i = 0; i < push_.entries.size(); ++i) {
    const Push::Entry& entry = push_.entries[i];
    auto settled = refused_[i] ? refused_[i] : state_.table.settled(push_, entry);
    if (!settled) return park();
    settled->repeated = settled->repeated && !fresh_[i];
    all_settled = all_settled && settles(settled->status);
    if (settled->status != Status::kApplied && message_.empty()) {
      const std::string reason = settled->status == Status::kRejected ? state_.table.reason(entry.shard) : "";
      message_ = fmt::format("ps {}: {}: {}", state_.options.ps, state_.table.plan().shard_name(entry.shard),
                             reason.empty() ? status_name(settled->status) : reason);
    }
    replies.entries.push_back(*settled);
  }
  ++state_.pushes;
  if (!all_settled) ++state_.refused;
  if (all_settled) {
    count_staleness();
    state_.roll.step_done(static_cast<int>(push_.worker), push_.step);
    if (push_.closures_settled > 0) state_.table.settle_closures_below(push_.closures_settled);
    if (state_.options.staleness) state_.changed();
  }
  replies.global_step = state_.ready ? state_.global_step() : 0;
  replies.message = message_;
  reply(encode(replies));
  return true;
}

// How many updates there were since this worker pulled, its own not counted.
void PsConnection::count_staleness() {
  const std::uint64_t updates = state_.table.updates();
  const std::uint64_t between = updates > pulled_at_ + 1 ? updates - pulled_at_ - 1 : 0;
  ++state_.staleness[std::min<std::uint64_t>(between, state_.staleness.size() - 1)];
}

// Pull

bool PsConnection::begin_pull() {
  if (faults_.empty()) {
    faults_.resize(pull_.entries.size());
    const bool admitted = is_admitted(pull_.worker, pull_.incarnation);
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      faults_[i] = admitted ? state_.table.check(pull_.entries[i])
                            : ShardTable::Fault{Status::kNotAdmitted,
                                                "this process did not say hello, or a newer one did"};
    }
  }
  const bool any_fault = std::ranges::any_of(faults_, [](const auto& fault) { return bool(fault); });
  if (any_fault) {
    PullReply refusal;
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      refusal.entries.push_back({.shard = pull_.entries[i].shard, .status = faults_[i].status});
      if (faults_[i] && refusal.message.empty()) {
        refusal.message = fmt::format("ps {}: {}", state_.options.ps, faults_[i].message);
      }
    }
    ++state_.refused;
    faults_.clear();
    reply(encode(refusal));
    skip_then(prologue_.payload_bytes, Stage::kWrite);
    return true;
  }
  if (!state_.roll.may_start(*worker_, pull_.step)) return park();

  // Everything at once: who waits here holds nothing.
  std::vector<std::size_t> sizes{prologue_.payload_bytes};
  parts_.clear();
  for (const Pull::Entry& entry : pull_.entries) {
    PullPart& part = parts_.emplace_back();
    if (entry.kind == PayloadKind::kDense) {
      part.known = entry.known_version != 0 && entry.known_version == state_.table.version(entry.shard);
      if (!part.known) part.copy = state_.table.newest_copy(entry);
    }
    sizes.push_back(part.known || part.copy ? 0 : state_.table.copy_bytes(entry));
  }
  auto buffers = state_.staging.try_take(this, sizes);
  if (!buffers) {
    parts_.clear();
    return park();
  }
  faults_.clear();
  rows_ = std::move(buffers->front());
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].buffer = std::move((*buffers)[i + 1]);
  filled_ = 0;
  stage_ = Stage::kPullRows;
  return true;
}

bool PsConnection::read_rows() {
  if (!fill(rows_.bytes(), filled_)) return false;
  PullReply pulled;
  pulled_at_ = state_.table.updates();
  std::size_t row_offset = 0;
  for (std::size_t i = 0; i < pull_.entries.size(); ++i) {
    const Pull::Entry& entry = pull_.entries[i];
    PullPart& part = parts_[i];
    PullReply::Entry out{.shard = entry.shard, .kind = entry.kind, .type = entry.type};
    if (entry.kind == PayloadKind::kRows) {
      const auto rows = rows_.bytes().subspan(row_offset, entry.payload_bytes());
      row_offset += rows.size();
      if (const auto fault = fault_of_pulled_rows(entry, rows)) {
        out = {.shard = entry.shard, .status = fault.status};
        if (pulled.message.empty()) {
          pulled.message = fmt::format("ps {}: {}: {}", state_.options.ps,
                                       state_.table.plan().shard_name(entry.shard), fault.message);
          ++state_.refused;
        }
      } else {
        part.copy = state_.table.copy_rows(entry, as_rows(rows), std::move(part.buffer));
      }
    } else if (part.known) {
      out.kind = PayloadKind::kNothing;
      out.version = entry.known_version;
    } else if (!part.copy) {
      part.copy = state_.table.copy(entry, std::move(part.buffer));
    }
    if (part.copy) {
      out.version = part.copy->version;
      out.crc = part.copy->crc;
      out.count = part.copy->buffer.bytes().size() / wire_type_bytes(entry.type);
      if (out.count > 0) out_copies_.push_back(std::move(part.copy));
    }
    pulled.entries.push_back(out);
  }
  ++state_.pulls;
  rows_ = {};
  parts_.clear();
  reply(encode(pulled));
  return true;
}

ShardTable::Fault PsConnection::fault_of_pulled_rows(const Pull::Entry& entry,
                                                     std::span<const std::byte> rows) const {
  if (crc32c(rows.data(), rows.size()) != entry.crc) {
    return {Status::kDamaged, "the rows' numbers are damaged on the way"};
  }
  std::string fault = fault_of_rows(as_rows(rows), state_.table.plan().shards()[entry.shard].rows());
  if (fault.empty()) return {};
  return {Status::kMalformed, std::move(fault)};
}

}  // namespace tandem::internal::ps
