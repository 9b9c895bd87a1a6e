#include "orders.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "tandem/error.h"

namespace tandem::bench {
namespace {

using internal::FileDescriptor;

struct LocalAddress {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit LocalAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // the first byte 0: no file
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Packets: a message is read whole or not at all.
FileDescriptor local_socket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

void wait_readable(int socket, std::chrono::milliseconds patience) {
  pollfd readable{.fd = socket, .events = POLLIN, .revents = 0};
  int ready = -1;
  do {
    ready = poll(&readable, 1, static_cast<int>(patience.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) {
    throw DeadlineExceeded(
        fmt::format("a benchmark process has been silent for {} s", patience.count() / 1000));
  }
}

}  // namespace

OrderSocket OrderSocket::dial(const std::string& name, int rank) {
  FileDescriptor dialled = local_socket();
  const LocalAddress address(name);
  if (connect(dialled.get(), address.get(), address.length) != 0) {
    throw Unavailable(fmt::format("nobody gives orders at \"{}\": {}", name, std::strerror(errno)));
  }
  OrderSocket socket(std::move(dialled));
  socket.send(rank);
  return socket;
}

void OrderSocket::send_bytes(const void* data, std::size_t bytes) {
  if (::send(socket_.get(), data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) {
    throw Unavailable(fmt::format("a benchmark process is gone: {}", std::strerror(errno)));
  }
}

bool OrderSocket::receive_bytes(void* data, std::size_t bytes, std::chrono::milliseconds patience) {
  wait_readable(socket_.get(), patience);
  return recv(socket_.get(), data, bytes, 0) == static_cast<ssize_t>(bytes);
}

OrderListener::OrderListener() : socket_(local_socket()) {
  static int listeners = 0;
  name_ = fmt::format("tandem-bench-{}-{}", getpid(), ++listeners);
  const LocalAddress address(name_);
  constexpr int kBacklog = 64;
  if (bind(socket_.get(), address.get(), address.length) != 0 || listen(socket_.get(), kBacklog) != 0) {
    throw Error(ErrorCode::kInternal,
                fmt::format("cannot listen at \"{}\": {}", name_, std::strerror(errno)));
  }
}

std::pair<int, OrderSocket> OrderListener::accept(std::chrono::milliseconds patience) {
  wait_readable(socket_.get(), patience);
  OrderSocket socket(FileDescriptor(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  const auto rank = socket.receive<int>(patience);
  if (!rank) throw Unavailable("a benchmark process ended as it began");
  return {*rank, std::move(socket)};
}

}  // namespace tandem::bench
