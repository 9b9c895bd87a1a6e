#include "ps/closure_dispatcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "base/net.h"
#include "ps/closure_board.h"
#include "ps/closure_server.h"
#include "ps/closure_stream.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = ClosureMessageKind;
using std::chrono::milliseconds;

constexpr milliseconds kFirstBackOff{10};
constexpr milliseconds kLongestBackOff{500};
constexpr milliseconds kFarewellPatience{2000};

}  // namespace

bool ClosureHandle::done() const {
  return board_->is_over(*state_);
}

const std::string& ClosureHandle::wait() const {
  return board_->wait(*state_);
}

// Keeps the connection to one worker, and gives it one closure after the other.
class ClosureDispatcher::Worker {
 public:
  Worker(std::shared_ptr<ClosureBoard> board, int worker)
      : board_(std::move(board)), options_(board_->options()), worker_(worker) {
    thread_ = std::thread([this] { run(); });
  }
  // After the board has stopped.
  ~Worker() { thread_.join(); }
  Worker(const Worker&) = delete;

 private:
  struct Stopped {};

  void run() {
    try {
      pause(options_.stagger * worker_);
      while (true) {
        const std::string why = connect_and_exchange();
        stream_.reset();
        board_->set_gone(worker_, why);
        pause(back_off_);
        back_off_ = std::min(2 * back_off_, kLongestBackOff);
      }
    } catch (const Stopped&) {
    }
    say_goodbye();
    board_->set_gone(worker_, "the coordinator is done");
  }

  // Returns why it is over.
  std::string connect_and_exchange() {
    try {
      connect({});
      exchange();
    } catch (const tcp::ChannelClosed& closed) {
      return closed.what();
    } catch (const std::exception& error) {
      // What it says cannot be read, or there is no memory for it.
      return error.what();
    }
  }

  // `deadline`: for the farewell, which is not to be interrupted. None: until the board stops.
  using Deadline = std::optional<Clock::time_point>;

  void connect(Deadline deadline) {
    std::string why = "not there";
    const auto endpoint = options_.locate(worker_, why);
    if (!endpoint) throw tcp::ChannelClosed(why);
    if (refused_ == endpoint && !deadline) throw tcp::ChannelClosed(refusal_);
    endpoint_ = *endpoint;
    const auto patience = [&] { return deadline.value_or(Clock::now() + options_.worker_timeout); };
    const HostPort place = parse_address(endpoint->address, "a worker's address");
    const SocketAddress target = resolve_host(place.host, place.port).front();
    FileDescriptor socket(::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) throw tcp::ChannelClosed(std::strerror(errno));
    if (::connect(socket.get(), target.get(), target.length) != 0 && errno != EINPROGRESS) {
      throw tcp::ChannelClosed(std::strerror(errno));
    }
    wait(socket.get(), POLLOUT, patience(), deadline.has_value());
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) throw tcp::ChannelClosed(std::strerror(error));

    const tcp::GroupIdentity identity = closure_identity(options_.cluster_id, endpoint->key);
    std::optional<tcp::Encryption> encryption;
    if (options_.encrypt) encryption.emplace(endpoint->key);
    auto handshake =
        tcp::Handshake::dial(tcp::Channel(std::move(socket), encryption ? &*encryption : nullptr, false),
                             identity, kCoordinatorMember, static_cast<std::uint32_t>(worker_));
    while (!handshake.step()) {
      wait(handshake.descriptor(), handshake.events(), patience(), deadline.has_value());
    }
    stream_.emplace(handshake.take());
  }

  // Until the connection ends: throws then.
  [[noreturn]] void exchange() {
    alive_ = Clock::now();
    asked_ = false;
    ready_ = false;
    running_ = 0;
    while (true) {
      if (board_->stopped()) throw Stopped{};
      if (const auto refusal = board_->refusal(worker_)) {
        refused_ = endpoint_;
        refusal_ = *refusal;
        throw tcp::ChannelClosed(refusal_);
      }
      if (ready_ && running_ == 0) begin_next();
      if (move_bytes()) continue;
      std::array<pollfd, 2> polled{
          {{bell().descriptor(), POLLIN, 0}, {stream_->descriptor(), stream_->events(), 0}}};
      const auto left = std::chrono::ceil<milliseconds>(check_alive() - Clock::now());
      poll(polled.data(), polled.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
      bell().heard();
    }
  }

  void begin_next() {
    const auto job = board_->take(worker_);
    if (!job) return;
    running_ = job->closure;
    stream_->say({.kind = Kind::kRun, .closure = job->closure, .settled_below = job->settled_below},
                 job->call);
  }

  // Whether anything came.
  bool move_bytes() {
    const std::uint64_t before = stream_->bytes_read();
    if (stream_->write() > 0) alive_ = Clock::now();
    while (auto message = stream_->read()) take(*std::move(message));
    if (stream_->bytes_read() == before) return false;
    alive_ = Clock::now();
    asked_ = false;
    return true;
  }

  // Asks for a sign of life when there has been none for a while, but once only: what the system takes from
  // us for a peer that is no more must not pass for one. Returns when to look again.
  Clock::time_point check_alive() {
    const bool waits = asked_ || !stream_->wrote_all();
    const Clock::time_point due = alive_ + (waits ? options_.worker_timeout : options_.worker_timeout / 4);
    if (Clock::now() < due) return due;
    if (waits) {
      throw tcp::ChannelClosed(fmt::format("has not answered for {:.1f} s",
                                           std::chrono::duration<double>(options_.worker_timeout).count()));
    }
    asked_ = true;
    stream_->say({.kind = Kind::kPing});
    return Clock::now();
  }

  void take(ClosureMessage message) {
    const ClosureHeader& header = message.header;
    const bool answers = header.kind == Kind::kResult || header.kind == Kind::kFailed;
    if (answers && header.closure != running_) throw InvalidArgument("it answers what was not asked");
    switch (header.kind) {
      case Kind::kPong:
        return;
      case Kind::kReady:
        if (ready_) throw InvalidArgument("it says twice that it is ready");
        board_->set_ready(worker_, decode_functions(message.payload));
        ready_ = true;
        back_off_ = kFirstBackOff;
        return;
      case Kind::kResult:
        board_->succeed(worker_, std::move(message.payload));
        running_ = 0;
        return;
      case Kind::kFailed:
        board_->fail(worker_, closure_error_code(header), message.payload);
        running_ = 0;
        return;
      default:
        throw InvalidArgument("a message that only a coordinator sends");
    }
  }

  // Nothing is to be done any more. A worker that cannot be told finds out by itself.
  void say_goodbye() {
    const Clock::time_point deadline = Clock::now() + kFarewellPatience;
    const std::string failure = board_->farewell();
    const auto code = failure.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(ErrorCode::kAborted);
    try {
      if (!stream_) connect(deadline);
      stream_->say({.kind = Kind::kGoodbye, .code = code}, closure_text(failure));
      while (stream_->write(), !stream_->wrote_all()) {
        wait(stream_->descriptor(), POLLOUT, deadline, true);
      }
      stream_->finish();
      // It closes the connection when it has read this. If we did, what is unread here would take it back.
      while (true) {
        if (!stream_->read()) wait(stream_->descriptor(), POLLIN, deadline, true);
      }
    } catch (const std::exception&) {
    }
    stream_.reset();
  }

  // Throws ChannelClosed at the deadline.
  void wait(int descriptor, short events, Clock::time_point until, bool to_the_end) {
    while (to_the_end || !board_->stopped()) {
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
      if (left.count() <= 0) throw tcp::ChannelClosed("does not answer");
      std::array<pollfd, 2> polled{{{descriptor, events, 0}, {bell().descriptor(), POLLIN, 0}}};
      poll(polled.data(), to_the_end ? 1 : 2, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
      bell().heard();
      if (polled[0].revents) return;
    }
    throw Stopped{};
  }

  void pause(milliseconds time) {
    try {
      wait(-1, 0, Clock::now() + time, false);
    } catch (const tcp::ChannelClosed&) {
    }
  }

  const Bell& bell() const { return board_->bell(worker_); }

  const std::shared_ptr<ClosureBoard> board_;
  const ClosureDispatcherOptions& options_;
  const int worker_;

  // The thread's own.
  std::optional<ClosureStream> stream_;
  ClosureEndpoint endpoint_;
  std::optional<ClosureEndpoint> refused_;  // a process that lacks a function
  std::string refusal_;
  milliseconds back_off_ = kFirstBackOff;
  Clock::time_point alive_ = {};  // when bytes last moved
  bool asked_ = false;            // for a sign of life
  bool ready_ = false;
  std::uint64_t running_ = 0;  // the closure that it has; 0: none
  std::thread thread_;
};

ClosureDispatcher::ClosureDispatcher(ClosureDispatcherOptions options)
    : board_(std::make_shared<ClosureBoard>(std::move(options))) {
  for (std::size_t worker = 0; worker < board_->options().workers.size(); ++worker) {
    workers_.push_back(std::make_unique<Worker>(board_, static_cast<int>(worker)));
  }
}

ClosureDispatcher::~ClosureDispatcher() {
  finish({});
}

void ClosureDispatcher::expect_function(const std::string& name) {
  board_->expect_function(name);
}

ClosureHandle ClosureDispatcher::schedule(const std::string& function, const std::string& arguments) {
  return {board_, board_->schedule(function, arguments)};
}

void ClosureDispatcher::join() {
  board_->join();
}

bool ClosureDispatcher::done() {
  return board_->done();
}

void ClosureDispatcher::finish(const std::string& failure) {
  if (!board_->stopped()) board_->stop(failure);
  workers_.clear();
}

int ClosureDispatcher::ready_workers() const {
  return board_->ready_workers();
}

}  // namespace tandem::internal::ps
