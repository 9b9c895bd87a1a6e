#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp/handshake.h"
#include "ps/limits.h"

namespace tandem::internal::ps {

// In the handshake of the transport, worker w is member w of a group whose last member is the coordinator.
// The group's size differs from the parameter servers' own, so neither can be taken for the other.
inline constexpr std::uint32_t kCoordinatorMember = kMostWorkers;
inline tcp::GroupIdentity closure_identity(const std::string& cluster_id, const std::string& key) {
  return {.cluster_id = cluster_id, .generation = 0, .key = key, .size = kMostWorkers + 1};
}

struct ClosureServerOptions {
  int worker = 0;

  // Where it listens. Port 0: any.
  std::string host = "127.0.0.1";
  int port = 0;

  // Who may come in: who knows both. `key` has 32 bytes, `cluster_id` 32 hexadecimal digits.
  std::string cluster_id = {};
  std::string key = {};
  bool encrypt = false;
};

// One closure, for the time that it runs.
struct ClosureRequest {
  std::uint64_t closure = 0;
  std::uint64_t settled_below = 0;  // all closures below are over, and will not run again
  std::string_view function = {};
  std::string_view arguments = {};
};

struct ServeOptions {
  // What this worker can run.
  std::vector<std::string> functions = {};
  // Runs one and returns its result. What it throws becomes the closure's error.
  std::function<std::string(const ClosureRequest&)> run = {};
  // How long to go without a word from the coordinator.
  std::chrono::milliseconds coordinator_timeout{300'000};
};

// The worker's end of a coordinator: takes closures over the network, one at a time. It listens from the
// beginning, so that its address can be told to others before there is anything to run; connections are kept
// by a thread of its own, which also answers the coordinator while a closure runs.
//
// Whoever does not prove to know the key is turned away. A coordinator that connects anew takes the place of
// the one before; what still runs for that one is finished, and its result dropped.
class ClosureServer {
 public:
  // Throws Unavailable if it cannot listen, InvalidArgument if the host is not of this machine.
  explicit ClosureServer(ClosureServerOptions options);
  ~ClosureServer();
  ClosureServer(const ClosureServer&) = delete;

  int port() const;
  // "10.0.0.1:40123".
  const std::string& address() const;

  // Runs closures on this thread until the coordinator says that there are no more. Throws Aborted if the
  // coordinator says that it failed, Unavailable if nothing has been heard of it for coordinator_timeout.
  void serve(const ServeOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::internal::ps
