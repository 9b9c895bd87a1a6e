#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/net.h"
#include "comm/tcp/handshake.h"
#include "ps/ps_state.h"
#include "ps_service/counting_store.h"

namespace tandem::internal::ps {

using testing_support::kClusterId;
using testing_support::kKey;

// A worker that says what the test makes it say, over a proper connection.
class RawPeer {
 public:
  RawPeer(const std::string& address, int worker, const std::string& key = kKey,
          const std::string& cluster = kClusterId)
      : identity_(ps_identity(cluster, key)) {
    const int port = std::stoi(address.substr(address.rfind(':') + 1));
    const SocketAddress target = resolve_host("127.0.0.1", port).front();
    FileDescriptor socket(::socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(socket.get(), target.get(), target.length) != 0) throw std::runtime_error("connect");
    auto handshake = tcp::Handshake::dial(tcp::Channel(std::move(socket), nullptr, false), identity_,
                                          kFirstWorkerMember + static_cast<std::uint32_t>(worker), 0);
    while (!handshake.step()) wait(handshake.descriptor(), handshake.events());
    channel_ = handshake.take();
  }

  void send(const std::string& bytes, std::span<const std::byte> payload = {}) {
    std::string all = bytes + std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
    for (std::size_t at = 0; at < all.size();) {
      const iovec part{all.data() + at, all.size() - at};
      const std::size_t moved = channel_.write(&part, 1);
      if (moved == 0) wait(channel_.descriptor(), POLLOUT);
      at += moved;
    }
  }
  template <typename Message>
  Message receive() {
    std::array<std::byte, kPrologueBytes> prologue_bytes;
    read(prologue_bytes);
    const Prologue prologue = parse_prologue(prologue_bytes, 1 << 20);
    std::vector<std::byte> header(prologue.header_bytes);
    read(header);
    payload.resize(prologue.payload_bytes);
    read(payload);
    return decode<Message>(prologue, header);
  }
  // Until the other side closes.
  void expect_end() {
    std::byte one;
    EXPECT_THROW(read(std::span(&one, 1)), tcp::ChannelClosed);
  }

  std::vector<std::byte> payload;

 private:
  static void wait(int descriptor, short events) {
    pollfd polled{descriptor, events, 0};
    if (poll(&polled, 1, 5000) <= 0) throw std::runtime_error("no answer");
  }
  void read(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t moved = channel_.read(bytes.data(), bytes.size());
      if (moved == 0) wait(channel_.descriptor(), POLLIN);
      bytes = bytes.subspan(moved);
    }
  }

  const tcp::GroupIdentity identity_;
  tcp::Channel channel_;
};

}  // namespace tandem::internal::ps
