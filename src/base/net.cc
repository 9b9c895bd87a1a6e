#include "base/net.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// 0, or the reason why nothing can listen there.
int try_to_listen(const SocketAddress& address) {
  const FileDescriptor listener(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) return errno;
  const int on = 1;  // a port whose last connections are still dying may be used
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener.get(), address.get(), address.length) != 0) return errno;
  return listen(listener.get(), 1) == 0 ? 0 : errno;
}

// The same for all that a name stands for: an address that others may reach us at must be ours. One that this
// machine does not have (IPv6 may be off) is none of them, unless there is no other.
int try_to_listen(const std::vector<SocketAddress>& addresses) {
  int listening = 0;
  int missing = 0;
  for (const SocketAddress& address : addresses) {
    const int error = try_to_listen(address);
    if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
      missing = error;
    } else if (error != 0) {
      return error;
    } else {
      ++listening;
    }
  }
  return listening > 0 ? 0 : missing;
}

std::string next_free_port(const std::string& host, int port) {
  constexpr int kTries = 200;
  for (int next = port + 1; next <= std::min(port + kTries, 65535); ++next) {
    if (try_to_listen(resolve_host(host, next)) == 0) return fmt::format("; port {} is free", next);
  }
  return "";
}

}  // namespace

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24 == 127;
  }
  return family() == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
}

std::string SocketAddress::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (getnameinfo(get(), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text.data();
}

int try_to_connect(const SocketAddress& address, std::chrono::milliseconds patience) {
  const FileDescriptor connection(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connection.get() < 0) return errno;
  if (connect(connection.get(), address.get(), address.length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  pollfd end{connection.get(), POLLOUT, 0};
  int ready = -1;
  do {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return ETIMEDOUT;
    ready = poll(&end, 1, static_cast<int>(left.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return errno;
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

std::vector<SocketAddress> resolve_host(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error != 0)
    throw NotFound(fmt::format("host \"{}\" cannot be resolved: {}", host, gai_strerror(error)));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

bool is_loopback_host(const std::string& host) {
  try {
    return std::ranges::all_of(resolve_host(host, 1), &SocketAddress::is_loopback);
  } catch (const NotFound&) {
    return false;
  }
}

std::string join_host_port(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

void check_can_listen(const std::string& who, const std::string& host, int port) {
  const int error = try_to_listen(resolve_host(host, port));
  if (error == 0) return;
  const std::string address = join_host_port(host, port);
  if (error == EADDRINUSE) {
    throw Unavailable(fmt::format("{} cannot listen at {}: the port is in use{}", who, address,
                                  next_free_port(host, port)));
  }
  if (error == EADDRNOTAVAIL) {
    throw InvalidArgument(fmt::format(
        "{} cannot listen at {}: that is no address of this machine; is the task's index right? If the "
        "address is "
        "right but reached through another one (NAT, a container), give the address to listen at (--bind)",
        who, address));
  }
  throw Unavailable(fmt::format("{} cannot listen at {}: {}", who, address, std::strerror(error)));
}

}  // namespace tandem::internal
