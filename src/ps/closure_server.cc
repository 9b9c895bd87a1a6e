#include "ps/closure_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/bell.h"
#include "base/log.h"
#include "comm/group.h"
#include "ps/closure_stream.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = ClosureMessageKind;
using std::chrono::milliseconds;

constexpr std::size_t kMostStrangers = 64;
constexpr milliseconds kHandshakePatience{2000};
constexpr std::chrono::seconds kSayAgain{10};

// Someone who has not yet proved to be the coordinator.
struct Stranger {
  tcp::Handshake handshake;
  Clock::time_point since = Clock::now();
};

struct Answer {
  ClosureHeader header = {};
  std::string payload = {};
};

// What the closure returns or throws, as a message.
Answer answer_of(const ServeOptions& options, const ClosureRequest& request) {
  const auto failed = [&](ErrorCode code, std::string_view text) {
    return Answer{.header = {.kind = Kind::kFailed,
                             .code = static_cast<std::uint8_t>(code),
                             .closure = request.closure},
                  .payload = closure_text(text)};
  };
  try {
    std::string result = options.run(request);
    if (result.size() > kMostClosureBytes) {
      return failed(ErrorCode::kInvalidArgument,
                    fmt::format("its result has {} bytes: at most {}", result.size(), kMostClosureBytes));
    }
    return {.header = {.kind = Kind::kResult, .closure = request.closure}, .payload = std::move(result)};
  } catch (const Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::exception& error) {
    return failed(ErrorCode::kUnknown, error.what());
  } catch (...) {
    return failed(ErrorCode::kUnknown, "it threw something that is no std::exception");
  }
}

}  // namespace

struct ClosureServer::Impl {
  explicit Impl(ClosureServerOptions the_options)
      : options(std::move(the_options)),
        identity(closure_identity(options.cluster_id, options.key)),
        port(options.host, options.port),
        listener(port.take()) {
    if (options.encrypt) encryption.emplace(options.key);
    thread = std::thread([this] { keep_connections(); });
  }

  ~Impl() {
    stopping = true;
    bell.ring();
    thread.join();
  }

  // The thread of the connections

  void keep_connections() {
    std::vector<pollfd> polled;
    while (!stopping) {
      polled.assign({{bell.descriptor(), POLLIN, 0}, {listener.get(), POLLIN, 0}});
      polled.push_back({coordinator ? coordinator->descriptor() : -1, events(), 0});
      for (const auto& stranger : strangers) {
        polled.push_back({stranger->handshake.descriptor(), stranger->handshake.events(), 0});
      }
      poll(polled.data(), polled.size(), strangers.empty() ? -1 : 100);
      bell.heard();
      look_at_strangers(polled);
      if (polled[1].revents) accept_all();
      if (coordinator) look_at_coordinator();
    }
  }

  short events() const { return coordinator ? coordinator->events() : 0; }

  void look_at_strangers(const std::vector<pollfd>& polled) {
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < strangers.size(); ++i) {
      auto& stranger = strangers[i];
      try {
        if (polled[i + 3].revents && stranger->handshake.step()) {
          if (stranger->handshake.peer() != kCoordinatorMember) {
            throw tcp::ChannelClosed("is not the coordinator");
          }
          welcome(stranger->handshake.take());
          stranger.reset();
        } else if (now - stranger->since > kHandshakePatience) {
          stranger.reset();
        }
      } catch (const tcp::ChannelClosed& closed) {
        // One line, whoever knocks and how often.
        if (!turned_away) {
          log_info("worker {}: a connection was turned away ({})", options.worker, closed.what());
        }
        turned_away = true;
        stranger.reset();
      }
    }
    std::erase(strangers, nullptr);
  }

  void accept_all() {
    while (true) {
      FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        if (errno != EMFILE && errno != ENFILE) return;
        // Out of descriptors: the oldest stranger gives way. Else it is tried again in a moment.
        if (strangers.empty()) {
          std::this_thread::sleep_for(milliseconds(10));
          return;
        }
        strangers.erase(strangers.begin());
        continue;
      }
      if (strangers.size() >= kMostStrangers) strangers.erase(strangers.begin());
      strangers.push_back(std::make_unique<Stranger>(Stranger{
          tcp::Handshake::answer(tcp::Channel(std::move(socket), encryption ? &*encryption : nullptr, true),
                                 identity, static_cast<std::uint32_t>(options.worker))}));
    }
  }

  void welcome(tcp::Channel channel) {
    coordinator.emplace(std::move(channel));
    const std::lock_guard lock(mutex);
    ++connection;
    connected = true;
    told_ready = false;
    request.reset();
    answer.reset();
    last_heard = Clock::now();
  }

  void lose_coordinator() {
    coordinator.reset();
    const std::lock_guard lock(mutex);
    connected = false;
    request.reset();
  }

  void look_at_coordinator() {
    try {
      const std::uint64_t before = coordinator->bytes_read();
      while (auto message = coordinator->read()) {
        const bool last = message->header.kind == Kind::kGoodbye;
        take(*std::move(message));
        if (last) return lose_coordinator();
      }
      std::unique_lock lock(mutex);
      if (coordinator->bytes_read() != before) last_heard = Clock::now();
      if (serving && !busy && !told_ready) {
        told_ready = true;
        coordinator->say({.kind = Kind::kReady}, encode_functions(functions));
      }
      if (answer) coordinator->say(answer->header, std::move(answer->payload));
      answer.reset();
      lock.unlock();
      coordinator->write();
      if (coordinator->has_unread()) bell.ring();
    } catch (const tcp::ChannelClosed& closed) {
      log_warning("worker {}: the coordinator is gone ({})", options.worker, closed.what());
      lose_coordinator();
    } catch (const InvalidArgument& error) {
      log_warning("worker {}: the coordinator sends what cannot be read, and is disconnected: {}",
                  options.worker, error.what());
      lose_coordinator();
    } catch (const std::bad_alloc&) {
      log_warning("worker {}: no memory for what the coordinator sends: it is disconnected", options.worker);
      lose_coordinator();
    }
  }

  void take(ClosureMessage message) {
    switch (message.header.kind) {
      case Kind::kPing:
        coordinator->say({.kind = Kind::kPong});
        return;
      case Kind::kRun: {
        decode_call(message.payload);  // or it is refused, here and now
        const std::lock_guard lock(mutex);
        if (!told_ready || request || busy) {
          throw InvalidArgument("a closure that this worker has not asked for");
        }
        request = std::move(message);
        break;
      }
      case Kind::kGoodbye: {
        const std::lock_guard lock(mutex);
        farewell = std::move(message);
        break;
      }
      default:
        throw InvalidArgument("a message that only a worker sends");
    }
    changed.notify_all();
  }

  // The thread of serve()

  // Whatever ends it, with the lock held: a coordinator that still sends closures is not left waiting for
  // them.
  struct Leaving {
    explicit Leaving(Impl& the_server) : server(the_server) {}
    ~Leaving() {
      server.serving = false;
      server.told_ready = false;
      server.request.reset();
    }
    Impl& server;
  };

  void serve(const ServeOptions& serve_options) {
    std::unique_lock lock(mutex);
    functions = serve_options.functions;
    serving = true;
    const Leaving leaving(*this);
    last_heard = Clock::now();
    bell.ring();
    while (!farewell) {
      if (!request) {
        wait_for_coordinator(lock, serve_options.coordinator_timeout);
        continue;
      }
      const ClosureMessage message = *std::exchange(request, std::nullopt);
      const std::uint64_t asked_by = connection;
      busy = true;
      lock.unlock();
      const ClosureCall call = decode_call(message.payload);
      Answer made = answer_of(serve_options, {.closure = message.header.closure,
                                              .settled_below = message.header.settled_below,
                                              .function = call.function,
                                              .arguments = call.arguments});
      lock.lock();
      busy = false;
      if (connection == asked_by && connected) answer = std::move(made);
      bell.ring();
    }
    const ClosureMessage last = *std::exchange(farewell, std::nullopt);
    if (last.header.code != 0) {
      throw Aborted(fmt::format("the coordinator has stopped: {}", closure_text(last.payload)));
    }
  }

  void wait_for_coordinator(std::unique_lock<std::mutex>& lock, milliseconds patience) {
    const auto wakes = [&] { return request || farewell; };
    const Clock::time_point give_up = last_heard + patience;
    if (changed.wait_until(lock, std::min(give_up, Clock::now() + kSayAgain), wakes)) return;
    const double silence = std::chrono::duration<double>(Clock::now() - last_heard).count();
    if (Clock::now() >= last_heard + patience) {
      throw Unavailable(
          fmt::format("worker {} has heard nothing of the coordinator for {:.1f} s: start it again",
                      options.worker, silence));
    }
    if (!connected)
      log_info("worker {}: waiting for the coordinator since {:.0f} s", options.worker, silence);
  }

  const ClosureServerOptions options;
  const tcp::GroupIdentity identity;
  DataPort port;
  const FileDescriptor listener;
  std::optional<tcp::Encryption> encryption;
  Bell bell;
  std::atomic<bool> stopping{false};

  // The thread's own.
  std::vector<std::unique_ptr<Stranger>> strangers;
  std::optional<ClosureStream> coordinator;
  bool turned_away = false;

  std::mutex mutex;  // of what is below
  std::condition_variable changed;
  std::vector<std::string> functions;
  bool serving = false;
  bool busy = false;  // a closure runs, perhaps one of an earlier connection
  bool connected = false;
  bool told_ready = false;                // on this connection
  std::uint64_t connection = 0;           // counts them
  std::optional<ClosureMessage> request;  // to run next
  std::optional<Answer> answer;           // to send
  std::optional<ClosureMessage> farewell;
  Clock::time_point last_heard = Clock::now();

  std::thread thread;
};

ClosureServer::ClosureServer(ClosureServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

ClosureServer::~ClosureServer() = default;

int ClosureServer::port() const {
  return impl_->port.port();
}

const std::string& ClosureServer::address() const {
  return impl_->port.address();
}

void ClosureServer::serve(const ServeOptions& options) {
  impl_->serve(options);
}

}  // namespace tandem::internal::ps
