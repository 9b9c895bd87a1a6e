#include "comm/tcp/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/tcp/buffers.h"
#include "comm/tcp/mesh.h"
#include "tandem/error.h"

namespace tandem::internal::tcp {
namespace {

constexpr std::size_t kReadAhead = 16 << 10;

// Every member is connected before Gloo sees a pair, so nobody asks for its address.
class NoAddress final : public ::gloo::transport::Address {
 public:
  std::string str() const override { return {}; }
  std::vector<char> bytes() const override { return {}; }
};

[[noreturn]] void throw_error(std::uint64_t code, const std::string& message) {
  switch (static_cast<ErrorCode>(code)) {
    case ErrorCode::kUnavailable:
      throw Unavailable(message);
    case ErrorCode::kFailedPrecondition:
      throw FailedPrecondition(message);
    case ErrorCode::kDeadlineExceeded:
      throw DeadlineExceeded(message);
    default:
      throw Aborted(message);
  }
}

}  // namespace

Link::Link(Mesh& mesh, int peer, Channel channel)
    : mesh_(mesh), peer_(peer), channel_(std::move(channel)), ahead_(kReadAhead) {}

Link::~Link() = default;

void Link::send(FrameHeader header, const void* payload, std::size_t bytes, int* done) {
  header.length = bytes;
  Outgoing frame{header, static_cast<const char*>(payload), bytes, 0, done};
  if (outgoing_.empty() && write_front(frame)) return;
  outgoing_.push_back(frame);
}

// Returns whether the whole frame has gone.
bool Link::write_front(Outgoing& frame) {
  constexpr std::size_t kHeader = sizeof(FrameHeader);
  while (frame.sent < kHeader + frame.bytes) {
    std::array<iovec, 2> parts;
    int count = 0;
    if (frame.sent < kHeader) {
      parts[count++] = {reinterpret_cast<char*>(&frame.header) + frame.sent, kHeader - frame.sent};
    }
    const std::size_t payload_sent = frame.sent < kHeader ? 0 : frame.sent - kHeader;
    if (frame.bytes > payload_sent) {
      parts[count++] = {const_cast<char*>(frame.payload) + payload_sent, frame.bytes - payload_sent};
    }
    std::size_t moved = 0;
    try {
      moved = channel_.write(parts.data(), count);
    } catch (const ChannelClosed& closed) {
      // What the other side said last may explain it.
      read_some();
      broken(closed.what());
    }
    if (moved == 0) return false;
    frame.sent += moved;
  }
  mesh_.count_sent(frame.bytes);
  if (frame.done) ++*frame.done;
  return true;
}

void Link::write_some() {
  while (!outgoing_.empty() && write_front(outgoing_.front())) outgoing_.pop_front();
}

void Link::post(std::uint64_t slot, const std::shared_ptr<PostedReceive>& receive) {
  posted_[slot].push_back(receive);
  held_ = false;  // the frame that is held may be the one
}

void Link::add(std::uint64_t slot, BoundBuffer* buffer) {
  bound_[slot] = buffer;
  held_ = false;
}

void Link::remove(std::uint64_t slot, BoundBuffer* buffer) {
  const auto found = bound_.find(slot);
  if (found != bound_.end() && found->second == buffer) bound_.erase(found);
}

bool Link::has_unread() const {
  return can_read() && ((header_bytes_ == sizeof(FrameHeader) && !accepted_) || ahead_begin_ != ahead_end_ ||
                        channel_.has_unread());
}

bool Link::has_receives() const {
  return std::any_of(posted_.begin(), posted_.end(), [](const auto& slot) {
    return std::any_of(slot.second.begin(), slot.second.end(),
                       [](const auto& receive) { return !receive->taken; });
  });
}

void Link::check_receives() const {
  for (const auto& [slot, receives] : posted_) {
    for (const auto& receive : receives) {
      if (receive->only_here && !receive->taken) return check_can_come();
    }
  }
}

std::size_t Link::read(void* data, std::size_t bytes) {
  try {
    return channel_.read(data, bytes);
  } catch (const ChannelClosed& closed) {
    broken(closed.what());
  }
}

void Link::read_some() {
  while (can_read()) {
    if (header_bytes_ < sizeof(FrameHeader)) {
      if (!read_header()) return;
    }
    if (!accepted_) {
      accepted_ = accept();
      held_ = !accepted_ && !ended_;
      if (!accepted_) return;
    }
    while (left_ > 0) {
      std::size_t moved = 0;
      if (ahead_begin_ < ahead_end_) {
        moved = std::min(left_, ahead_end_ - ahead_begin_);
        std::memcpy(target_, ahead_.data() + ahead_begin_, moved);
        ahead_begin_ += moved;
      } else {
        moved = read(target_, left_);
      }
      if (moved == 0) return;
      target_ += moved;
      left_ -= moved;
    }
    finish_frame();
  }
}

bool Link::read_header() {
  while (header_bytes_ < sizeof(FrameHeader)) {
    if (ahead_begin_ == ahead_end_) {
      ahead_begin_ = 0;
      ahead_end_ = read(ahead_.data(), ahead_.size());
      if (ahead_end_ == 0) return false;
    }
    const std::size_t part = std::min(sizeof(FrameHeader) - header_bytes_, ahead_end_ - ahead_begin_);
    std::memcpy(reinterpret_cast<char*>(&header_) + header_bytes_, ahead_.data() + ahead_begin_, part);
    header_bytes_ += part;
    ahead_begin_ += part;
  }
  return true;
}

bool Link::accept() {
  const FrameHeader& mine = mesh_.header();
  switch (header_.kind) {
    case FrameKind::kGoodbye:
      ended_ = true;
      return false;
    case FrameKind::kAbort:
      if (header_.length > kLongestReason) refuse("a reason that is too long");
      reason_.resize(header_.length);
      target_ = reason_.data();
      left_ = header_.length;
      return true;
    case FrameKind::kPosted:
    case FrameKind::kBound:
      break;
    default:
      refuse("what is no frame");
  }
  if (header_.sequence > mine.sequence) return false;
  if (!same_operation(header_, mine)) {
    throw FailedPrecondition(fmt::format(
        "{} is in {} while {} is in {}: every task must issue the same collectives in the same order, with "
        "equal "
        "sizes and types",
        mesh_.name(mesh_.rank), Mesh::describe(mine), mesh_.name(peer_), Mesh::describe(header_)));
  }
  if (header_.kind == FrameKind::kBound) {
    const auto found = bound_.find(header_.slot);
    if (found == bound_.end()) return false;
    BoundBuffer& buffer = *found->second;
    if (header_.offset > buffer.bytes() || header_.length > buffer.bytes() - header_.offset) {
      refuse(
          fmt::format("{} bytes at {} for a buffer of {}", header_.length, header_.offset, buffer.bytes()));
    }
    target_ = buffer.data() + header_.offset;
    received_ = &buffer.received_;
    source_ = nullptr;
  } else {
    const auto found = posted_.find(header_.slot);
    if (found == posted_.end()) return false;
    auto& queue = found->second;
    while (!queue.empty() && queue.front()->taken) queue.pop_front();
    if (queue.empty()) {
      posted_.erase(found);
      return false;
    }
    PostedReceive& receive = *queue.front();
    if (header_.length != receive.bytes) {
      refuse(fmt::format("{} bytes where {} were expected", header_.length, receive.bytes));
    }
    receive.taken = true;
    target_ = receive.data;
    received_ = &receive.buffer->received_;
    source_ = &receive.buffer->last_source_;
    queue.pop_front();
    if (queue.empty()) posted_.erase(found);
  }
  left_ = header_.length;
  return true;
}

void Link::finish_frame() {
  accepted_ = false;
  header_bytes_ = 0;
  if (header_.kind == FrameKind::kAbort) {
    // Its reason is the message; who passes it on does not matter.
    throw_error(header_.offset, one_line(reason_));
  }
  mesh_.count_received(header_.length);
  if (source_) *source_ = peer_;
  ++*received_;
}

void Link::check_can_come() const {
  if (ended_) {
    throw FailedPrecondition(
        fmt::format("{} has ended while {} waits for it in {}: every task must issue the same collectives",
                    mesh_.name(peer_), mesh_.name(mesh_.rank), mesh_.describe()));
  }
  if (held_ && header_.sequence > mesh_.header().sequence) {
    throw FailedPrecondition(
        fmt::format("{} has gone on to {} while {} waits for it in {}: every task must issue the same "
                    "collectives in the same "
                    "order, with equal sizes and types",
                    mesh_.name(peer_), Mesh::describe(header_), mesh_.name(mesh_.rank), mesh_.describe()));
  }
}

void Link::refuse(const std::string& why) const {
  throw FailedPrecondition(fmt::format("{} sent {} to {} in {}", mesh_.name(peer_), why,
                                       mesh_.name(mesh_.rank), mesh_.describe()));
}

void Link::broken(const std::string& how) const {
  throw Unavailable(fmt::format("{} lost its connection to {} in {}: {}", mesh_.name(mesh_.rank),
                                mesh_.name(peer_), mesh_.describe(), how));
}

void Link::give_up(const FrameHeader& header, const std::string& reason) {
  // Whoever waited is gone, and its memory with it: nothing more is read.
  ended_ = true;
  posted_.clear();
  bound_.clear();
  try {
    // In the middle of another frame it would be taken for payload; the end of the connection must do.
    if (outgoing_.empty() || outgoing_.front().sent == 0) {
      Outgoing frame{header, reason.data(), reason.size(), 0, nullptr};
      frame.header.length = reason.size();
      write_front(frame);
    }
  } catch (const std::exception&) {
  }
  outgoing_.clear();
  channel_.finish();
}

void Link::say_goodbye(const FrameHeader& header) {
  try {
    if (outgoing_.empty()) {
      Outgoing frame{header, nullptr, 0, 0, nullptr};
      write_front(frame);
    }
  } catch (const std::exception&) {
  }
  channel_.finish();
}

bool Link::drain() {
  std::array<char, 4096> dropped;
  try {
    while (channel_.read(dropped.data(), dropped.size()) > 0) continue;
    return false;
  } catch (const ChannelClosed&) {
    return true;
  }
}

const ::gloo::transport::Address& Link::address() const {
  static const NoAddress none;
  return none;
}

void Link::connect(const std::vector<char>&) {}

std::unique_ptr<::gloo::transport::Buffer> Link::createSendBuffer(int slot, void* ptr, std::size_t size) {
  return std::make_unique<BoundBuffer>(mesh_, *this, BoundBuffer::Use::kSend, slot, ptr, size);
}

std::unique_ptr<::gloo::transport::Buffer> Link::createRecvBuffer(int slot, void* ptr, std::size_t size) {
  return std::make_unique<BoundBuffer>(mesh_, *this, BoundBuffer::Use::kReceive, slot, ptr, size);
}

void Link::send(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
                std::size_t nbytes) {
  buffer->send(peer_, tag, offset, nbytes);
}

void Link::recv(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
                std::size_t nbytes) {
  buffer->recv(peer_, tag, offset, nbytes);
}

}  // namespace tandem::internal::tcp
