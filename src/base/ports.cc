#include "base/ports.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr int kHighestPort = 65535;
// Well-known services are below.
constexpr int kLowestPort = 10000;

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  void set_port(int port) {
    const auto network_order = htons(static_cast<std::uint16_t>(port));
    if (storage.ss_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = network_order;
    } else {
      reinterpret_cast<sockaddr_in*>(&storage)->sin_port = network_order;
    }
  }
  int port() const {
    return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                               : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  }
};

// Without SO_REUSEADDR, so that a port is free only if no one at all has it. Empty: errno says why.
FileDescriptor bind_to(const Address& address) {
  FileDescriptor bound(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!bound) return bound;
  if (address.storage.ss_family == AF_INET6) {
    const int on = 1;
    setsockopt(bound.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  if (bind(bound.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) return {};
  return bound;
}

// Where a task that listens on `host` may listen: a name can have an IPv4 and an IPv6 address.
std::vector<Address> local_addresses(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failure != 0)
    throw InvalidArgument(fmt::format("host \"{}\" is unknown: {}", host, gai_strerror(failure)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.bytes = entry->ai_addrlen;
    // Port 0: any. A machine without IPv6 may still have a name for ::1.
    if (bind_to(address)) addresses.push_back(address);
  }
  if (addresses.empty()) {
    throw InvalidArgument(
        fmt::format("host \"{}\" is not an address of this machine: {}", host, std::strerror(errno)));
  }
  return addresses;
}

// A name in the abstract socket namespace: it belongs to one process of the network namespace, as a port
// does, and is gone when that process is, however it ends.
FileDescriptor claim(int port) {
  FileDescriptor claimed(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!claimed) return claimed;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("tandem-port-{}", port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(claimed.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return {};
  return claimed;
}

// The port bound on every address, as long as this object lives.
struct BoundPort {
  FileDescriptor claimed;
  std::vector<FileDescriptor> sockets;
};

std::optional<BoundPort> try_port(std::vector<Address>& addresses, int port) {
  BoundPort bound;
  bound.claimed = claim(port);
  if (!bound.claimed) return std::nullopt;
  for (auto& address : addresses) {
    address.set_port(port);
    bound.sockets.push_back(bind_to(address));
    if (!bound.sockets.back()) return std::nullopt;
  }
  return bound;
}

// A port of the kernel's choice: for machines where nothing is left outside its range.
int any_port(Address address) {
  address.set_port(0);
  const FileDescriptor bound = bind_to(address);
  if (!bound || getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0)
    return 0;
  return address.port();
}

std::vector<int> candidates() {
  int low = 32768;
  int high = 60999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  std::vector<int> ports;
  for (const auto& [first, last] : port_ranges_outside(low, high)) {
    for (int port = first; port <= last; ++port) ports.push_back(port);
  }
  return ports;
}

}  // namespace

std::vector<std::pair<int, int>> port_ranges_outside(int low, int high) {
  std::vector<std::pair<int, int>> ranges;
  if (low > kLowestPort) ranges.emplace_back(kLowestPort, std::min(low - 1, kHighestPort));
  if (high < kHighestPort) ranges.emplace_back(std::max(high + 1, kLowestPort), kHighestPort);
  return ranges;
}

ReservedPorts ReservedPorts::choose(const std::string& host, int count) {
  auto addresses = local_addresses(host);
  const std::vector<int> ports = candidates();
  // Two launchers that start together should not have to try the same ones.
  const std::size_t start = ports.empty() ? 0 : std::random_device{}() % ports.size();
  ReservedPorts reserved;
  std::vector<BoundPort> bound;  // all of them until the last one is chosen
  const auto take = [&](int port) {
    if (auto taken = try_port(addresses, port)) {
      reserved.ports_.push_back(port);
      bound.push_back(std::move(*taken));
    }
  };
  const auto missing = [&] { return static_cast<int>(bound.size()) < count; };
  for (std::size_t i = 0; i < ports.size() && missing(); ++i) take(ports[(start + i) % ports.size()]);
  for (int i = 0; i < 100 * count && missing(); ++i) {
    if (const int port = any_port(addresses.front())) take(port);
  }
  if (missing())
    throw Unavailable(fmt::format("only {} of {} ports are free on \"{}\"", bound.size(), count, host));
  for (auto& port : bound) reserved.claims_.push_back(std::move(port.claimed));
  return reserved;
}

ReservedPorts ReservedPorts::from(const std::string& host, int first, int count) {
  auto addresses = local_addresses(host);
  if (first < 1 || first > kHighestPort - count + 1) {
    throw InvalidArgument(fmt::format("base port {}: {} ports from there do not lie within 1 to {}", first,
                                      count, kHighestPort));
  }
  ReservedPorts reserved;
  for (int port = first; port < first + count; ++port) {
    auto bound = try_port(addresses, port);
    if (!bound)
      throw Unavailable(fmt::format("port {} of \"{}\" is in use: choose another base port", port, host));
    reserved.ports_.push_back(port);
    reserved.claims_.push_back(std::move(bound->claimed));
  }
  return reserved;
}

}  // namespace tandem::internal
