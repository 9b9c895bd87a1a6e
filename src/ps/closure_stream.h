#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "comm/tcp/channel.h"
#include "ps/closure_wire.h"

namespace tandem::internal::ps {

struct ClosureMessage {
  ClosureHeader header = {};
  std::string payload = {};
};

// Whole messages over a connection; never blocks. Room for a payload grows with what has come of it, so that
// nothing is allocated on the other side's word alone.
class ClosureStream {
 public:
  explicit ClosureStream(tcp::Channel channel) : channel_(std::move(channel)) {}

  // To be sent by the calls of write() that follow. A payload that may be sent again is shared.
  void say(const ClosureHeader& header, std::shared_ptr<const std::string> payload);
  void say(const ClosureHeader& header, std::string payload = {});

  // Sends what can be sent now, and tells how much.
  std::size_t write();
  bool wrote_all() const { return out_.empty(); }

  // The next message that is whole, if there is one now. Throws InvalidArgument for what is none; the
  // connection is of no use then.
  std::optional<ClosureMessage> read();
  // All bytes that have come so far, of whatever.
  std::uint64_t bytes_read() const { return bytes_read_; }

  int descriptor() const { return channel_.descriptor(); }
  // What poll() should wait for, save where has_unread().
  short events() const;
  bool has_unread() const { return channel_.has_unread(); }

  // The other side will read the end after what was written.
  void finish() { channel_.finish(); }

 private:
  struct Outgoing {
    std::string header;
    std::shared_ptr<const std::string> payload;
    std::size_t sent = 0;  // of both together
  };

  // Whether `bytes` are there now, in front of what is read next.
  bool fill(char* to, std::size_t bytes);

  tcp::Channel channel_;
  std::deque<Outgoing> out_;
  std::array<char, kClosureHeaderBytes> header_bytes_ = {};
  std::optional<ClosureMessage> in_;  // once its header is there
  std::size_t filled_ = 0;            // of the header, then of the payload
  std::uint64_t bytes_read_ = 0;
};

}  // namespace tandem::internal::ps
