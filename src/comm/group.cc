#include "comm/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/net.h"
#include "comm/backends.h"
#include "comm/choose_algorithm.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr int kBacklog = 256;

int port_of(int socket) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

const Backend* find(const std::string& name) {
  const auto found =
      std::ranges::find_if(backends(), [&](const Backend& backend) { return name == backend.name; });
  return found == backends().end() ? nullptr : &*found;
}

const Backend& choose_backend(const CommunicationOptions& options) {
  std::string name = options.engine.empty() ? "tcp" : options.engine;
  if (options.engine.empty() && options.implementation == CommunicationImplementation::kNccl) {
    const Backend* nccl = find("nccl");
    if (nccl && nccl->available()) return *nccl;
    log_info("NCCL was asked for, but there is none here: a ring over TCP instead");
  }
  const Backend* backend = find(name);
  if (!backend) {
    std::vector<std::string> names;
    for (const Backend& each : backends()) names.push_back(each.name);
    throw InvalidArgument(
        fmt::format("there is no engine \"{}\": expected one of {}", name, fmt::join(names, ", ")));
  }
  if (!backend->available()) {
    throw Unimplemented(
        fmt::format("the engine \"{}\" is not in this build, or has no device here: use \"tcp\"", name));
  }
  return *backend;
}

std::string algorithms_of(const CommunicationOptions& options, const Engine& engine) {
  if (engine.chooses_algorithms()) return "an algorithm of its own choice";
  if (options.algorithm != AllReduceAlgorithm::kAuto) return algorithm_name(options.algorithm);
  if (options.implementation != CommunicationImplementation::kAuto) return "ring";
  return "auto: " + describe_choice(engine.size(), engine.several_hosts());
}

}  // namespace

bool on_several_hosts(const std::vector<Member>& members) {
  return std::ranges::any_of(members,
                             [&](const Member& member) { return member.host != members.front().host; });
}

DataPort::DataPort(const std::string& host, int port) {
  check_can_listen("the data port", host, port);
  const SocketAddress address = resolve_host(host, port).front();
  socket_ = FileDescriptor(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket_ || bind(socket_.get(), address.get(), address.length) != 0 ||
      listen(socket_.get(), kBacklog) != 0) {
    throw Unavailable(fmt::format("the data port cannot listen at {}: {}", join_host_port(host, port),
                                  std::strerror(errno)));
  }
  port_ = port_of(socket_.get());
  address_ = join_host_port(host, port_);
}

Communicator join_group(GroupSetup setup, const CommunicationOptions& options) {
  const Backend& backend = choose_backend(options);
  auto engine = backend.create(std::move(setup));
  log_info("{}: collectives of {} tasks over {}, all-reduce by {}", engine->member_name(engine->rank()),
           engine->size(), engine->name(), algorithms_of(options, *engine));
  return Communicator(std::move(engine), options);
}

}  // namespace tandem::internal
