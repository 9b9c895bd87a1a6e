#include "ps/closure_stream.h"

#include <poll.h>

#include <algorithm>

#include "base/crc32c.h"

namespace tandem::internal::ps {
namespace {

// A payload's room grows by this, or by as much as has come already.
constexpr std::size_t kGrowth = std::size_t{1} << 20;

}  // namespace

void ClosureStream::say(const ClosureHeader& header, std::shared_ptr<const std::string> payload) {
  std::string bytes = encode_header(header, *payload);
  out_.push_back({.header = std::move(bytes), .payload = std::move(payload)});
}

void ClosureStream::say(const ClosureHeader& header, std::string payload) {
  say(header, std::make_shared<const std::string>(std::move(payload)));
}

std::size_t ClosureStream::write() {
  std::size_t all = 0;
  while (!out_.empty()) {
    Outgoing& message = out_.front();
    const std::size_t header_left = message.header.size() - std::min(message.sent, message.header.size());
    const std::size_t payload_sent = message.sent - (message.header.size() - header_left);
    const std::array<iovec, 2> parts{{
        {message.header.data() + message.header.size() - header_left, header_left},
        {const_cast<char*>(message.payload->data()) + payload_sent, message.payload->size() - payload_sent},
    }};
    const std::size_t moved = channel_.write(parts.data(), static_cast<int>(parts.size()));
    if (moved == 0) break;
    all += moved;
    message.sent += moved;
    if (message.sent == message.header.size() + message.payload->size()) out_.pop_front();
  }
  return all;
}

bool ClosureStream::fill(char* to, std::size_t bytes) {
  while (filled_ < bytes) {
    const std::size_t got = channel_.read(to + filled_, bytes - filled_);
    if (got == 0) return false;
    filled_ += got;
    bytes_read_ += got;
  }
  return true;
}

std::optional<ClosureMessage> ClosureStream::read() {
  if (!in_) {
    if (!fill(header_bytes_.data(), header_bytes_.size())) return std::nullopt;
    in_.emplace().header = parse_header(std::as_bytes(std::span(header_bytes_)));
    filled_ = 0;
  }
  std::string& payload = in_->payload;
  while (filled_ < in_->header.payload_bytes) {
    const std::size_t room = filled_ + std::max(kGrowth, filled_);
    payload.resize(std::min<std::uint64_t>(in_->header.payload_bytes, room));
    if (!fill(payload.data(), payload.size())) return std::nullopt;
  }
  if (crc32c(payload.data(), payload.size()) != in_->header.payload_crc) {
    throw InvalidArgument("a message cannot be read: its payload is damaged");
  }
  filled_ = 0;
  return std::exchange(in_, std::nullopt);
}

short ClosureStream::events() const {
  return wrote_all() ? POLLIN : POLLIN | POLLOUT;
}

}  // namespace tandem::internal::ps
