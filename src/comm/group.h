#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "comm/engine.h"
#include "tandem/communicator.h"

namespace tandem::internal {

// A listening socket at which the other members of a group will find this one.
class DataPort {
 public:
  // `host` is a name or address of this machine. Port 0: any free one. Throws Unavailable if the port is
  // taken, InvalidArgument if the host is not of this machine.
  explicit DataPort(const std::string& host, int port = 0);

  // "10.0.0.1:40123", with brackets around an IPv6 address.
  const std::string& address() const { return address_; }
  int port() const { return port_; }
  FileDescriptor take() { return std::move(socket_); }

 private:
  FileDescriptor socket_;
  std::string address_;
  int port_ = 0;
};

struct Member {
  std::string name = {};          // "worker:1"
  std::string host = {};          // of its task: equal hosts are one machine
  std::string data_address = {};  // where its DataPort listens; unused by mpi
};

bool on_several_hosts(const std::vector<Member>& members);

// Who takes part, and how they know each other. The same on every member, save for rank and port.
struct GroupSetup {
  int rank = 0;
  std::vector<Member> members = {};
  std::unique_ptr<DataPort> port = {};
  // What a connection must prove to know, and belong to: see comm/tcp/handshake.h.
  std::string cluster_id = {};
  std::uint64_t generation = 1;
  std::string key = {};
  // Encrypts what travels (tcp engine).
  bool encrypt = false;
  // Security is "insecure", by choice: engines that ask nobody who they are may be used beyond loopback, too.
  bool trusted_network = false;
  // How long the members may take to connect to each other.
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(30);
};

// Connects the members with the engine that the options name. Throws Unavailable, naming who is missing,
// after connect_timeout; InvalidArgument for an engine that there is not, Unimplemented for one that is not
// in this build.
Communicator join_group(GroupSetup setup, const CommunicationOptions& options);

}  // namespace tandem::internal
