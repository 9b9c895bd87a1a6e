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
#include "ps/limits.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

constexpr std::chrono::milliseconds kHandshakePatience{2000};
// Others have their turn after so many bytes.
constexpr std::size_t kTurn = std::size_t{8} << 20;
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
    answer({.status = Status::kMalformed, .message = error.what()});
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
    case Stage::kTensors:
      return read_tensors();
    case Stage::kFirstSnapshot:
      return await_ready();
    case Stage::kAssigned:
      return await_saved();
    case Stage::kRead:
      return answer_read();
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
  std::uint64_t most = kMostElements;
  if (state_.ready) {
    // Dense and with every row's number, twice over, or all of it with its state: no honest message has more.
    const std::uint64_t bytes = state_.table.plan().bytes_on(state_.options.ps);
    most = 8 * bytes + most_state_bytes(bytes) + (std::uint64_t{16} << 20);
  }
  prologue_ = parse_prologue(prologue_bytes_, most);
  const bool of_shards = prologue_.kind == MessageKind::kInitialise || prologue_.kind == MessageKind::kAssign;
  const std::size_t entry_bytes = of_shards ? 4096 : 64;
  if (state_.ready && prologue_.header_bytes > 4096 + entry_bytes * state_.table.plan().shards().size()) {
    throw InvalidArgument(fmt::format("a header of {} bytes, for a model of {} shards",
                                      prologue_.header_bytes, state_.table.plan().shards().size()));
  }
  header_.clear();
  filled_ = 0;
  stage_ = Stage::kHeader;
  return true;
}

bool PsConnection::read_header() {
  while (filled_ < prologue_.header_bytes) {
    // Room for what has come, not for what was promised.
    header_.resize(std::min<std::size_t>(prologue_.header_bytes, filled_ + kReadBlock));
    if (!fill(header_, filled_)) return false;
  }
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
    case MessageKind::kRead:
      on_read(decode<Read>(prologue_, header_));
      return true;
    case MessageKind::kAssign:
      on_assign(decode<Assign>(prologue_, header_));
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

void PsConnection::answer(const Answer& message) {
  out_copies_.clear();
  reply(encode(message));
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
    return answer({.status = Status::kNotAdmitted, .message = "a worker finishes that did not say hello"});
  }
  state_.roll.finished(*worker_);
  worker_.reset();
  answer({});
  if (state_.options.staleness) {
    state_.table.settle_whole_steps();
    state_.catch_up();
    state_.changed();
  }
}

bool PsConnection::is_admitted(std::uint32_t worker, const Incarnation& incarnation) const {
  return worker_ && static_cast<std::uint32_t>(*worker_) == worker && incarnation == incarnation_ &&
         state_.roll.is_current(*worker_, serial_);
}

}  // namespace tandem::internal::ps
