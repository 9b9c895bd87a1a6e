#include "ps/ps_line.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/net.h"
#include "ps/ps_state.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectPatience{2000};
constexpr milliseconds kAnswerPatience{30'000};  // for a hello's reply, and for any byte of a handshake

// The other end vanishes without a word when its machine does.
void detect_dead_ps(int socket) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

void PsLine::connect(const PsEndpoint& endpoint) {
  if (identity_.key != endpoint.key || identity_.cluster_id.empty()) {
    identity_ = ps_identity(options_.cluster_id, endpoint.key);
    if (options_.encrypt) encryption_.emplace(endpoint.key);
  }
  FileDescriptor socket;
  try {
    const HostPort place = parse_address(endpoint.address, fmt::format("ps {}", ps_));
    const SocketAddress target = resolve_host(place.host, place.port).front();
    socket = FileDescriptor(::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) throw tcp::ChannelClosed(std::strerror(errno));
    if (::connect(socket.get(), target.get(), target.length) != 0 && errno != EINPROGRESS) {
      throw tcp::ChannelClosed(std::strerror(errno));
    }
  } catch (const NotFound& error) {
    throw tcp::ChannelClosed(error.what());
  }
  wait_for(socket.get(), POLLOUT, kConnectPatience);
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) throw tcp::ChannelClosed(std::strerror(error));
  detect_dead_ps(socket.get());
  auto handshake = tcp::Handshake::dial(
      tcp::Channel(std::move(socket), encryption_ ? &*encryption_ : nullptr, false), identity_,
      kFirstWorkerMember + static_cast<std::uint32_t>(options_.worker), static_cast<std::uint32_t>(ps_));
  while (!handshake.step()) wait_for(handshake.descriptor(), handshake.events(), kAnswerPatience);
  channel_ = handshake.take();
}

void PsLine::pause(milliseconds time) {
  wait_for(-1, 0, time);
}

// `descriptor` -1: until the time is over.
void PsLine::wait_for(int descriptor, short events, milliseconds patience) {
  const Clock::time_point until = Clock::now() + patience;
  while (!stopping_) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (left.count() <= 0) {
      if (descriptor < 0) return;
      throw tcp::ChannelClosed("does not answer");
    }
    std::array<pollfd, 2> polled{{{bell_.descriptor(), POLLIN, 0}, {descriptor, events, 0}}};
    poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    bell_.heard();
    if (polled[1].revents) return;
  }
  throw Stopped{};
}

void PsLine::write_all(std::span<const iovec> parts) {
  for (iovec part : parts) {
    while (part.iov_len > 0) {
      const std::size_t moved = channel_.write(&part, 1);
      if (moved == 0) {
        wait_for(channel_.descriptor(), channel_.wants_write() ? POLLOUT : POLLIN, kAnswerPatience);
      }
      part.iov_base = static_cast<std::byte*>(part.iov_base) + moved;
      part.iov_len -= moved;
    }
  }
}

void PsLine::read_all(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t moved = channel_.read(bytes.data(), bytes.size());
    if (moved == 0) wait_for(channel_.descriptor(), POLLIN, kAnswerPatience);
    bytes = bytes.subspan(moved);
  }
}

std::vector<std::byte> PsLine::read_message(Prologue& prologue) {
  std::array<std::byte, kPrologueBytes> bytes;
  read_all(bytes);
  prologue = parse_prologue(bytes, 0);
  std::vector<std::byte> header(prologue.header_bytes);
  read_all(header);
  return header;
}

}  // namespace tandem::internal::ps
