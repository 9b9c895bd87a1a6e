// What pushing and pulling a model costs beside a plain socket that moves the same bytes: one worker,
// parameter servers in processes of their own, on loopback. A round is a push of all gradients, added by the
// store, and then a pull of all values; plain: the same number of bytes there, and then back, read in blocks
// of the size that is fastest here. Then: what a ps needs in memory while eight workers push and pull.
//
//   bench/ps [--megabytes 100] [--rounds 15] [--bfloat16]        (builds first)
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/net.h"
#include "base/ports.h"
#include "ps/ps_client.h"
#include "ps/ps_service.h"
#include "ps_service/counting_store.h"
#include "support/peak_memory.h"
#include "support/running_program.h"
#include "tandem/placement.h"
#include "turns.h"

namespace tandem::bench {
namespace {

using namespace internal;
using namespace internal::ps;
using testing_support::CountingStore;
using testing_support::kClusterId;
using testing_support::kKey;
using testing_support::RunningProgram;
using namespace std::chrono_literals;

constexpr double kGiga = 1e9;
constexpr std::array<std::size_t, 4> kBlocks{64 << 10, 256 << 10, 1 << 20, 4 << 20};

// Tensors as a convolutional network has them: few large ones, and two small ones beside each.
PlacementPlan plan_of(std::size_t bytes, int num_ps) {
  std::vector<PlanVariable> variables;
  const std::int64_t large = 3 * 3 * 512 * 512;
  auto left = static_cast<std::int64_t>(bytes / sizeof(float));
  while (left > 0) {
    for (const std::int64_t size : {large, std::int64_t{512}, std::int64_t{512}}) {
      const std::int64_t count = std::min(size, left);
      if (count == 0) break;
      variables.push_back({fmt::format("v{}", variables.size()), "F32", {count}});
      left -= count;
    }
  }
  return {variables, {.num_ps = num_ps, .ps_strategy = GreedyLoadBalancing(num_ps)}};
}

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

void send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    check(n > 0, "send");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

// At most `block` bytes at once: what is read should still be in the cache when the next block comes. False
// at the end.
bool receive_all(int socket, std::span<std::byte> bytes, std::size_t block) {
  while (!bytes.empty()) {
    const ssize_t n = recv(socket, bytes.data(), std::min(block, bytes.size()), 0);
    check(n >= 0, "recv");
    if (n == 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

// Takes the size of a block and `bytes` in such blocks, and sends as many back, again and again.
void serve_plain(int port, std::size_t bytes) {
  const SocketAddress address = resolve_host("127.0.0.1", port).front();
  const FileDescriptor listener(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(bind(listener.get(), address.get(), address.length) == 0 && listen(listener.get(), 1) == 0, "listen");
  fmt::print("listens\n");
  std::fflush(stdout);
  const FileDescriptor peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  setsockopt(peer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::vector<std::byte> memory(bytes);
  std::uint64_t block = 0;
  while (receive_all(peer.get(), std::as_writable_bytes(std::span(&block, 1)), sizeof block)) {
    receive_all(peer.get(), memory, block);
    send_all(peer.get(), memory);
  }
}

void serve_ps(int ps, int port) {
  CountingStore store;
  PsService service(store, {.ps = ps, .port = port, .cluster_id = kClusterId, .key = kKey});
  fmt::print("listens\n");
  std::fflush(stdout);
  service.join(10min);
}

class Plain {
 public:
  Plain(int port, std::size_t bytes)
      : server_({TANDEM_BIN "/bench_ps", "--serve_plain", std::to_string(port), "--bytes",
                 std::to_string(bytes)}),
        memory_(bytes) {
    server_.wait_for("listens");
    const SocketAddress address = resolve_host("127.0.0.1", port).front();
    socket_ = FileDescriptor(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    check(connect(socket_.get(), address.get(), address.length) == 0, "connect");
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  double seconds(std::uint64_t block) {
    return seconds_of([&] {
      send_all(socket_.get(), std::as_bytes(std::span(&block, 1)));
      send_all(socket_.get(), memory_);
      receive_all(socket_.get(), memory_, block);
    });
  }

 private:
  RunningProgram server_;
  FileDescriptor socket_;
  std::vector<std::byte> memory_;
};

class Servers {
 public:
  Servers(std::span<const int> ports, std::size_t bytes, bool bfloat16)
      : plan_(plan_of(bytes, static_cast<int>(ports.size()))) {
    for (std::size_t ps = 0; ps < ports.size(); ++ps) {
      servers_.push_back(std::make_unique<RunningProgram>(std::vector<std::string>{
          TANDEM_BIN "/bench_ps", "--serve_ps", std::to_string(ps), "--port", std::to_string(ports[ps])}));
      servers_.back()->wait_for("listens");
      addresses_.push_back(fmt::format("127.0.0.1:{}", ports[ps]));
    }
    client_ = std::make_unique<PsClient>(
        plan_, PsClientOptions{
                   .locate = at_addresses(addresses_, kKey), .cluster_id = kClusterId, .bfloat16 = bfloat16});
    std::vector<std::span<const std::byte>> values;
    for (std::size_t i = 0; i < plan_.shards().size(); ++i) {
      gradients_memory_.emplace_back(plan_.shards()[i].bytes / sizeof(float), 1.0f);
      values_memory_.emplace_back(plan_.shards()[i].bytes / sizeof(float));
    }
    for (std::size_t i = 0; i < plan_.shards().size(); ++i) {
      gradients_.push_back({.shard = i, .values = std::as_bytes(std::span(gradients_memory_[i]))});
      targets_.push_back({.shard = i, .values = std::as_writable_bytes(std::span(values_memory_[i]))});
      values.push_back(std::as_bytes(std::span(values_memory_[i])));
    }
    client_->initialise("add", values);
  }

  double seconds() {
    const double seconds = seconds_of([&] {
      const double push = seconds_of([&] { client_->push_async({.step = step_}, gradients_).wait(1min); });
      const double pull = seconds_of([&] { client_->pull_async(step_ + 1, targets_).wait(1min); });
      pushes_.push_back(push);
      pulls_.push_back(pull);
    });
    ++step_;
    if (values_memory_[0][0] != static_cast<float>(step_)) throw std::runtime_error("the sums are wrong");
    return seconds;
  }
  // Bytes: the most that the first ps ever had in memory.
  std::uint64_t peak_memory() const { return testing_support::peak_memory(servers_[0]->id()); }
  std::span<const Gradient> gradients() const { return gradients_; }
  const PlacementPlan& plan() const { return plan_; }
  const std::vector<std::string>& addresses() const { return addresses_; }

  double push_seconds() const { return median(pushes_); }
  double pull_seconds() const { return median(pulls_); }

 private:
  PlacementPlan plan_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<RunningProgram>> servers_;
  std::vector<std::vector<float>> gradients_memory_;
  std::vector<std::vector<float>> values_memory_;
  std::vector<Gradient> gradients_;
  std::vector<PullTarget> targets_;
  std::unique_ptr<PsClient> client_;
  std::uint64_t step_ = 0;
  std::vector<double> pushes_;
  std::vector<double> pulls_;
};

void measure(std::size_t bytes, int rounds, bool bfloat16) {
  const auto ports = ReservedPorts::choose("127.0.0.1", 4);
  Plain plain(ports.ports()[0], bytes);
  Servers one(std::span(ports.ports()).subspan(1, 1), bytes, bfloat16);
  Servers two(std::span(ports.ports()).subspan(2, 2), bytes, bfloat16);
  std::vector<std::function<double()>> variants{[&] { return one.seconds(); }, [&] { return two.seconds(); }};
  for (const std::size_t block : kBlocks) {
    variants.push_back([&plain, block] { return plain.seconds(block); });
  }
  const auto samples = take_turns<double>(rounds, variants);
  const double moved = 2 * static_cast<double>(bytes) / kGiga;
  fmt::print("push + pull of {:.0f} MB{}, {} rounds in turn\n", static_cast<double>(bytes) / 1e6,
             bfloat16 ? " as bfloat16" : "", rounds);
  std::size_t best = 2;
  for (std::size_t i = 0; i < kBlocks.size(); ++i) {
    if (median(samples[i + 2]) < median(samples[best])) best = i + 2;
    fmt::print("{:<16} {:>6.2f} GB/s  in blocks of {} KiB\n", "plain socket", moved / median(samples[i + 2]),
               kBlocks[i] >> 10);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const Spread part = ratio(samples[best], samples[i]);
    const Servers& servers = i == 0 ? one : two;
    fmt::print(
        "{:<16} {:>6.2f} GB/s  {:>3.0f} % of the best ({:.0f} to {:.0f}); push {:.0f} ms, pull {:.0f} ms{}\n",
        fmt::format("{} ps", i + 1), moved / median(samples[i]), 100 * part.median, 100 * part.low,
        100 * part.high, 1e3 * servers.push_seconds(), 1e3 * servers.pull_seconds(),
        part.median >= 0.5 ? "" : "   below the bar of 50 %");
  }
}

// Eight workers that push and pull at once. They share their gradients: this is about the ps.
void measure_memory(std::size_t bytes) {
  constexpr int kWorkers = 8;
  constexpr std::uint64_t kRounds = 4;
  const auto ports = ReservedPorts::choose("127.0.0.1", 1);
  Servers servers(ports.ports(), bytes, false);
  std::vector<std::thread> threads;
  for (int number = 1; number <= kWorkers; ++number) {
    threads.emplace_back([&, number] {
      PsClient client(
          servers.plan(),
          {.worker = number, .locate = at_addresses(servers.addresses(), kKey), .cluster_id = kClusterId});
      client.wait_until_ready();
      std::vector<std::vector<std::byte>> values;
      std::vector<PullTarget> targets;
      for (const Shard& shard : servers.plan().shards()) values.emplace_back(shard.bytes);
      for (std::size_t i = 0; i < values.size(); ++i) targets.push_back({.shard = i, .values = values[i]});
      for (std::uint64_t step = 0; step < kRounds; ++step) {
        auto push = client.push_async({.step = step}, servers.gradients());
        client.pull_async(step + 1, targets).wait(5min);
        push.wait(5min);
      }
      client.finish();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double mib = 1 << 20;
  const double bar = 3 * static_cast<double>(bytes) / mib + 64;
  const double peak = static_cast<double>(servers.peak_memory()) / mib;
  fmt::print("memory of a ps with {:.0f} MiB of variables and {} workers: {:.0f} MiB; bar {:.0f} MiB{}\n",
             static_cast<double>(bytes) / mib, kWorkers, peak, bar, peak <= bar ? "" : "   above it");
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app{"Parameter servers beside a plain socket"};
  std::size_t megabytes = 100;
  std::size_t bytes = 0;
  int rounds = 15;
  int plain_port = 0;
  int ps = -1;
  int port = 0;
  bool bfloat16 = false;
  app.add_option("--megabytes", megabytes);
  app.add_option("--rounds", rounds);
  app.add_flag("--bfloat16", bfloat16);
  app.add_option("--serve_plain", plain_port)->group("");
  app.add_option("--bytes", bytes)->group("");
  app.add_option("--serve_ps", ps)->group("");
  app.add_option("--port", port)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (plain_port > 0) {
      tandem::bench::serve_plain(plain_port, bytes);
    } else if (ps >= 0) {
      tandem::bench::serve_ps(ps, port);
    } else {
      tandem::bench::measure(megabytes * 1'000'000, rounds, bfloat16);
      tandem::bench::measure_memory(megabytes * 1'000'000);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
