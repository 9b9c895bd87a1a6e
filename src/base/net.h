#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tandem::internal {

// A socket address that a name stands for.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  bool is_loopback() const;
  std::string host() const;  // "127.0.0.1", "::1"
};

// What the system's resolver says; may take as long as its name servers do. Throws NotFound with its reason.
std::vector<SocketAddress> resolve_host(const std::string& host, int port);

// Whether every address that the host stands for is one of this machine's loopback. An unknown host is not.
bool is_loopback_host(const std::string& host);

// Connects and lets go at once. 0, or the system's reason; ETIMEDOUT if there is no answer within `patience`.
int try_to_connect(const SocketAddress& address, std::chrono::milliseconds patience);

// "host:port", with brackets around an IPv6 address.
std::string join_host_port(const std::string& host, int port);

// Tries to listen there and lets go at once. Throws Unavailable if the port is taken (naming the next free
// one) and InvalidArgument if the host is not an address of this machine; `who` begins the message.
void check_can_listen(const std::string& who, const std::string& host, int port);

}  // namespace tandem::internal
