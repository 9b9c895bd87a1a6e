#include "ps/ps_service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/bell.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "ps/ps_connection.h"
#include "ps/ps_state.h"
#include "ps/rate_meter.h"
#include "ps/snapshots.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostStrangers = 64;
constexpr milliseconds kFirstLook{2};    // for a table that was filled
constexpr milliseconds kLookAround{50};  // for workers whose time is over, and snapshots that are due

FileDescriptor listen_at(const PsServiceOptions& options) {
  const SocketAddress address = resolve_host(options.host, options.port).front();
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket || bind(socket.get(), address.get(), address.length) != 0 || listen(socket.get(), 256) != 0) {
    throw Unavailable(fmt::format("ps {} cannot listen on {}: {}", options.ps,
                                  join_host_port(options.host, options.port), std::strerror(errno)));
  }
  return socket;
}

int port_of(int socket) {
  SocketAddress bound;
  bound.length = sizeof bound.storage;
  getsockname(socket, reinterpret_cast<sockaddr*>(&bound.storage), &bound.length);
  return ntohs(bound.family() == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound.storage)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&bound.storage)->sin_port);
}

PsServiceOptions checked(PsServiceOptions options) {
  if (options.aggregate && (*options.aggregate == 0 || options.staleness != 0u)) {
    throw InvalidArgument(
        fmt::format("aggregate {}: expected at least 1 update for each step, and a staleness "
                    "of 0",
                    *options.aggregate));
  }
  return options;
}

}  // namespace

struct PsService::Impl {
  // A thread and the connections that it serves.
  struct Loop {
    Bell bell;
    std::mutex mutex = {};
    std::vector<std::unique_ptr<PsConnection>> arrived = {};  // guarded by mutex
    std::vector<std::unique_ptr<PsConnection>> connections = {};
    std::thread thread = {};
  };

  Impl(ShardStore& store, PsServiceOptions options)
      : loops(static_cast<std::size_t>(std::max(1, options.threads))),
        state(store, options, [this] { ring(); }),
        listener(listen_at(options)) {
    if (options.encrypt) encryption.emplace(options.key);
    if (!options.snapshot_folder.empty()) {
      snapshots.emplace(options.snapshot_folder, options.ps);
      if (const auto finished = snapshots->load(state.table)) {
        state.roll.restore_finished(*finished);
        state.resumed = true;
        state.set_ready();
        saved_updates = state.table.updates();
        saved_finished_count = finished->size();
        log_info("ps {}: goes on from a snapshot after {} updates", options.ps, saved_updates);
      }
      saver = std::thread([this] { save_from_time_to_time(); });
    }
    for (Loop& loop : loops) {
      loop.thread = std::thread([this, &loop] { serve(loop); });
    }
  }

  ~Impl() {
    stopping = true;
    ring();
    for (Loop& loop : loops) loop.thread.join();
    for (Loop& loop : loops) {
      loop.connections.clear();
      loop.arrived.clear();
    }
    {
      const std::lock_guard lock(saver_mutex);
      saver_changed.notify_all();
    }
    if (saver.joinable()) saver.join();
    if (snapshots) {
      if (const std::string error = save(); !error.empty()) {
        log_warning("ps {}: its last snapshot failed: {}", state.options.ps, error);
      }
    }
  }

  void ring() {
    for (Loop& loop : loops) loop.bell.ring();
  }

  void serve(Loop& loop) {
    const bool listens = &loop == &loops.front();
    std::vector<pollfd> polled;
    while (!stopping) {
      polled.assign(1, {loop.bell.descriptor(), POLLIN, 0});
      Clock::time_point next = Clock::now() + kLookAround;
      for (const auto& connection : loop.connections) {
        polled.push_back({connection->descriptor(), connection->events(), 0});
        if (connection->is_eager()) next = {};
        next = std::min(next, connection->deadline());
      }
      if (listens) polled.push_back({listener.get(), POLLIN, 0});
      const auto patience = std::chrono::ceil<milliseconds>(next - Clock::now());
      poll(polled.data(), polled.size(),
           static_cast<int>(std::clamp<std::int64_t>(patience.count(), 0, 1000)));
      const bool rang = loop.bell.heard();
      const Clock::time_point now = Clock::now();
      for (std::size_t i = 0; i < loop.connections.size(); ++i) {
        if (!look_at(*loop.connections[i], polled[i + 1].revents, rang, now)) loop.connections[i].reset();
      }
      std::erase(loop.connections, nullptr);
      if (rang) adopt(loop, now);
      if (listens) {
        hand_over();
        if (polled.back().revents) accept_all();
        look_around(now);
      }
    }
  }

  // False when the connection is over.
  static bool look_at(PsConnection& connection, short events, bool rang, Clock::time_point now) {
    const bool parked = connection.is_parked();
    if (parked && (events & (POLLRDHUP | POLLHUP | POLLERR))) return false;
    const bool ready = parked ? rang : events != 0 || connection.is_eager();
    if (ready) return connection.advance(now);
    return now < connection.deadline();
  }

  // Who comes is heard by the first thread; workers are then spread over all of them.
  void hand_over() {
    for (auto& connection : loops.front().connections) {
      Loop& loop = loops[connection->serial() % loops.size()];
      if (connection->is_stranger() || &loop == &loops.front()) continue;
      {
        const std::lock_guard lock(loop.mutex);
        loop.arrived.push_back(std::move(connection));
      }
      loop.bell.ring();
    }
    std::erase(loops.front().connections, nullptr);
  }

  static void adopt(Loop& loop, Clock::time_point now) {
    std::vector<std::unique_ptr<PsConnection>> arrived;
    {
      const std::lock_guard lock(loop.mutex);
      arrived.swap(loop.arrived);
    }
    for (auto& connection : arrived) {
      if (connection->advance(now)) loop.connections.push_back(std::move(connection));
    }
  }

  void accept_all() {
    while (true) {
      FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        // Out of descriptors: those of strangers come first. Else it is tried again in a moment.
        if ((errno == EMFILE || errno == ENFILE) && drop_oldest_stranger()) continue;
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(milliseconds(10));
        return;
      }
      auto& connections = loops.front().connections;
      const auto strangers = std::ranges::count_if(
          connections, [](const auto& connection) { return connection->is_stranger(); });
      if (static_cast<std::size_t>(strangers) >= kMostStrangers) drop_oldest_stranger();
      connections.push_back(std::make_unique<PsConnection>(state, ++serial, std::move(socket),
                                                           encryption ? &*encryption : nullptr));
    }
  }

  bool drop_oldest_stranger() {
    auto& connections = loops.front().connections;
    const auto stranger =
        std::ranges::find_if(connections, [](const auto& connection) { return connection->is_stranger(); });
    if (stranger == connections.end()) return false;
    connections.erase(stranger);
    return true;
  }

  void look_around(Clock::time_point now) {
    push_rate.look(state.pushes, now);
    if (!state.roll.expire(now) || !state.options.staleness) return;
    if (state.ready) {
      state.table.settle_whole_steps();
      state.catch_up();
    }
    ring();
  }

  // Snapshots

  void save_from_time_to_time() {
    const PsServiceOptions& options = state.options;
    Clock::time_point due = Clock::now() + options.snapshot_every;
    bool failed = false;
    while (!stopping) {
      {
        std::unique_lock lock(saver_mutex);
        const auto pause = state.ready ? kLookAround : kFirstLook;
        saver_changed.wait_for(lock, pause, [&] { return stopping.load(); });
      }
      if (stopping || !state.filled) continue;
      const std::uint64_t assignments = state.assignments;
      const bool many = state.table.updates() >= saved_updates + options.snapshot_updates ||
                        state.roll.all_finished().size() != saved_finished_count;
      const bool asked_for = !state.ready || assignments != state.assignments_saved;
      // A disk that is full is not tried, and complained about, all the time.
      if (!asked_for && (!many || failed) && Clock::now() < due) continue;
      const std::string error = save();
      failed = !error.empty();
      if (failed && !stopping) {
        log_warning("ps {}: a snapshot failed, the one before stays: {}", options.ps, error);
      }
      due = Clock::now() + options.snapshot_every;
      if (state.assignments_saved.exchange(assignments) != assignments) ring();
      if (state.ready) continue;
      state.set_ready();
      ring();
    }
  }

  std::string save() {
    const std::lock_guard lock(save_mutex);
    if (!state.filled) return {};
    const std::uint64_t updates = state.table.updates();
    const std::uint64_t assignments = state.assignments;
    const std::set<int> finished = state.roll.all_finished();
    const bool same = updates == saved_updates && finished == saved_finished &&
                      assignments == saved_assignments && snapshots->saved() > 0;
    if (same) return {};
    const Clock::time_point give_up = Clock::now() + std::chrono::seconds(60);
    const std::string error =
        snapshots->save(state.table, state.staging, finished, [&] { return Clock::now() > give_up; });
    if (error.empty()) {
      saved_updates = updates;
      saved_finished = finished;
      saved_assignments = assignments;
      saved_finished_count = finished.size();
    }
    return error;
  }

  std::vector<Loop> loops;
  PsState state;
  const FileDescriptor listener;
  std::optional<tcp::Encryption> encryption;
  std::uint64_t serial = 0;
  RateMeter push_rate;
  std::atomic<bool> stopping{false};

  std::optional<Snapshots> snapshots;
  std::mutex save_mutex;  // of what is below
  std::set<int> saved_finished;
  std::uint64_t saved_assignments = 0;
  std::atomic<std::uint64_t> saved_updates{0};
  std::atomic<std::size_t> saved_finished_count{0};
  std::mutex saver_mutex;
  std::condition_variable saver_changed;
  std::thread saver;
};

std::map<std::string, std::string> details_of(const PsCounters& counters) {
  if (!counters.ready) return {{"ready", "false"}};
  return {{"ready", "true"},
          {"shards", std::to_string(counters.shards)},
          {"bytes", std::to_string(counters.bytes)},
          {"workers", std::to_string(counters.workers)},
          {"updates", std::to_string(counters.updates)},
          {"global_step", counters.global_step ? std::to_string(*counters.global_step) : "null"},
          {"pushes", std::to_string(counters.pushes)},
          {"pushes_per_second", fmt::format("{:.1f}", counters.pushes_per_second)},
          {"pulls", std::to_string(counters.pulls)},
          {"refused", std::to_string(counters.refused)},
          {"snapshots", std::to_string(counters.snapshots)},
          {"staleness", fmt::format("[{}]", fmt::join(counters.staleness, ","))}};
}

PsService::PsService(ShardStore& store, PsServiceOptions options)
    : impl_(std::make_unique<Impl>(store, checked(std::move(options)))) {}

PsService::~PsService() = default;

int PsService::port() const {
  return port_of(impl_->listener.get());
}

bool PsService::join(std::chrono::milliseconds timeout) {
  return impl_->state.roll.wait_until_over(timeout);
}

std::string PsService::save_snapshot() {
  if (!impl_->snapshots) return "this ps has no folder for snapshots";
  return impl_->save();
}

PsCounters PsService::counters() const {
  PsState& state = impl_->state;
  PsCounters counters{.ready = state.ready,
                      .resumed = state.resumed,
                      .workers = state.roll.live(),
                      .pushes = state.pushes,
                      .pushes_per_second = impl_->push_rate.per_second(state.pushes, Clock::now()),
                      .pulls = state.pulls,
                      .refused = state.refused,
                      .bytes_in = state.bytes_in,
                      .bytes_out = state.bytes_out,
                      .snapshots = impl_->snapshots ? impl_->snapshots->saved() : 0};
  if (counters.ready) {
    counters.shards = state.table.ids().size();
    counters.bytes = state.table.plan().bytes_on(state.options.ps);
    counters.updates = state.table.updates();
    if (state.options.ps == 0) counters.global_step = counters.updates;
  }
  for (std::size_t i = 0; i < counters.staleness.size(); ++i) counters.staleness[i] = state.staleness[i];
  return counters;
}

}  // namespace tandem::internal::ps
