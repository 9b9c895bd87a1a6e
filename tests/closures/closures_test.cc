// A coordinator and workers that are threads of this process, over real sockets.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "base/file_descriptor.h"
#include "base/net.h"
#include "closures/where.h"
#include "ps/closure_dispatcher.h"
#include "ps/closure_server.h"
#include "ps/closure_stream.h"
#include "ps/closure_wire.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

const std::string kKey(32, 'k');

// A worker, and the thread that serves.
class Worker {
 public:
  using Run = std::function<std::string(const ClosureRequest&)>;

  Worker(int number, Run run, std::vector<std::string> functions = {"f"}, bool encrypt = false)
      : server_({.worker = number, .cluster_id = kClosureCluster, .key = kKey, .encrypt = encrypt}),
        served_(std::async(std::launch::async, [this, run, functions] {
          server_.serve({.functions = functions, .run = run, .coordinator_timeout = 20s});
        })) {}
  // Its coordinator must be gone by then.
  ~Worker() {
    if (served_.valid()) served_.wait();
  }

  ClosureEndpoint endpoint() const { return {server_.address(), kKey}; }
  int port() const { return server_.port(); }
  // What serve() throws is thrown here.
  void wait() { served_.get(); }

 private:
  ClosureServer server_;
  std::future<void> served_;
};

ClosureDispatcherOptions options_for(const std::vector<const Worker*>& workers) {
  std::vector<ClosureEndpoint> endpoints;
  ClosureDispatcherOptions options{.cluster_id = kClosureCluster, .all_workers_timeout = 20s};
  for (const Worker* worker : workers) {
    endpoints.push_back(worker->endpoint());
    options.workers.push_back("worker:" + std::to_string(options.workers.size()));
  }
  options.locate = [endpoints](int worker, std::string&) {
    return std::optional(endpoints[static_cast<std::size_t>(worker)]);
  };
  return options;
}

std::string echo(const ClosureRequest& request) {
  return std::string(request.arguments);
}

// Something that one thread waits for and another lets happen.
class Gate {
 public:
  void open() { opened_.set_value(); }
  void wait() { ASSERT_EQ(future_.wait_for(20s), std::future_status::ready); }

 private:
  std::promise<void> opened_;
  std::shared_future<void> future_ = opened_.get_future().share();
};

TEST(Closures, GiveTheirResultsToWhoeverHoldsTheirHandle) {
  Worker worker(0, echo);
  std::optional<ClosureHandle> last;
  {
    ClosureDispatcher dispatcher(options_for({&worker}));
    dispatcher.expect_function("f");
    std::vector<ClosureHandle> handles;
    for (int i = 0; i < 100; ++i) handles.push_back(dispatcher.schedule("f", std::to_string(i)));
    dispatcher.join();
    EXPECT_TRUE(dispatcher.done());
    for (int i = 0; i < 100; ++i) EXPECT_EQ(handles[static_cast<std::size_t>(i)].wait(), std::to_string(i));
    last = handles.back();
  }
  worker.wait();
  EXPECT_TRUE(last->done());
  EXPECT_EQ(last->wait(), "99");
}

TEST(Closures, TravelEncryptedToo) {
  Worker worker(0, echo, {"f"}, true);
  auto options = options_for({&worker});
  options.encrypt = true;
  ClosureDispatcher dispatcher(options);
  std::string large(5 << 20, 'x');
  large.back() = 'y';
  EXPECT_EQ(dispatcher.schedule("f", large).wait(), large);
}

TEST(Closures, CarryTheirNumberAndBelowWhichAllAreOver) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  Worker worker(0, [&](const ClosureRequest& request) {
    seen.emplace_back(request.closure, request.settled_below);
    return std::string();
  });
  auto options = options_for({&worker});
  options.first_closure = 1001;
  ClosureDispatcher dispatcher(options);
  for (int i = 0; i < 3; ++i) dispatcher.schedule("f", "").wait();
  EXPECT_EQ(seen,
            (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1001, 1001}, {1002, 1002}, {1003, 1003}}));
}

TEST(Closures, AreBegunByWhoeverIsFree) {
  Gate release;
  Worker slow(0, [&](const ClosureRequest& request) {
    release.wait();
    return echo(request);
  });
  Worker quick(1, echo);
  ClosureDispatcher dispatcher(options_for({&slow, &quick}));
  while (dispatcher.ready_workers() < 2) std::this_thread::sleep_for(1ms);
  std::vector<ClosureHandle> handles;
  for (int i = 0; i < 50; ++i) handles.push_back(dispatcher.schedule("f", std::to_string(i)));
  // All but the one that is held up.
  const auto over = [&] { return std::ranges::count_if(handles, &ClosureHandle::done); };
  const auto give_up = std::chrono::steady_clock::now() + 20s;
  while (over() < 49 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(over(), 49);
  EXPECT_FALSE(dispatcher.done());
  release.open();
  dispatcher.join();
}

TEST(Closures, WaitWhenTheQueueIsFull) {
  Gate release;
  Worker worker(0, [&](const ClosureRequest& request) {
    if (request.arguments == "hold") release.wait();
    return echo(request);
  });
  auto options = options_for({&worker});
  options.queue_size = 2;
  ClosureDispatcher dispatcher(options);
  dispatcher.schedule("f", "hold");
  auto scheduled = std::async(std::launch::async, [&] {
    for (int i = 0; i < 10; ++i) dispatcher.schedule("f", "");
  });
  EXPECT_EQ(scheduled.wait_for(100ms), std::future_status::timeout);
  release.open();
  ASSERT_EQ(scheduled.wait_for(20s), std::future_status::ready);
  dispatcher.join();
}

TEST(Closures, AnErrorCancelsThoseThatWaitAndIsThrownOnceWithTheWorkersName) {
  Gate failing;
  Gate held;
  Gate release;
  const Worker::Run run = [&](const ClosureRequest& request) -> std::string {
    if (request.arguments == "fail") {
      failing.wait();
      throw OutOfRange("the data\nhas ended");
    }
    if (request.arguments == "hold") {
      held.open();
      release.wait();
    }
    return echo(request);
  };
  Worker first(0, run);
  Worker second(1, run);
  ClosureDispatcher dispatcher(options_for({&first, &second}));
  const auto hold = dispatcher.schedule("f", "hold");
  held.wait();
  const auto fail = dispatcher.schedule("f", "fail");
  const auto behind = dispatcher.schedule("f", "behind");
  failing.open();
  const std::string cancelled = message_of<Cancelled>([&] { behind.wait(); });
  EXPECT_NE(cancelled.find("closure 3 (f) was cancelled"), std::string::npos) << cancelled;
  EXPECT_NE(cancelled.find("the data has ended"), std::string::npos) << cancelled;
  // Those under way are awaited before it is thrown.
  EXPECT_FALSE(dispatcher.done());
  EXPECT_FALSE(hold.done());
  auto joined = std::async(std::launch::async, [&] { dispatcher.join(); });
  EXPECT_EQ(joined.wait_for(50ms), std::future_status::timeout);
  release.open();
  const std::string error = message_of<OutOfRange>([&] { joined.get(); });
  EXPECT_EQ(hold.wait(), "hold");
  EXPECT_TRUE(error == "worker:0: closure 2 (f): the data has ended" ||
              error == "worker:1: closure 2 (f): the data has ended")
      << error;
  EXPECT_EQ(message_of<OutOfRange>([&] { fail.wait(); }), error);
  // Then all is as before.
  EXPECT_TRUE(dispatcher.done());
  EXPECT_EQ(dispatcher.schedule("f", "again").wait(), "again");
  dispatcher.join();
}

TEST(Closures, AnErrorComesOutOfScheduleAndOfDoneToo) {
  Worker worker(0, [](const ClosureRequest& request) -> std::string {
    if (request.arguments == "int") throw 7;
    if (request.arguments == "standard") throw std::runtime_error("oh");
    return {};
  });
  ClosureDispatcher dispatcher(options_for({&worker}));
  EXPECT_THROW(dispatcher.schedule("f", "int").wait(), Error);
  const std::string error = message_of<Error>([&] { dispatcher.schedule("f", ""); });
  EXPECT_NE(error.find("no std::exception"), std::string::npos) << error;
  EXPECT_THROW(dispatcher.schedule("f", "standard").wait(), Error);
  EXPECT_EQ(message_of<Error>([&] { dispatcher.done(); }), "worker:0: closure 2 (f): oh");
  EXPECT_TRUE(dispatcher.done());
}

TEST(Closures, AFunctionThatAWorkerLacksIsAnErrorThatNamesBoth) {
  Worker with(0, echo, {"f", "g"});
  Worker without(1, echo, {"f"});
  ClosureDispatcher dispatcher(options_for({&with, &without}));
  dispatcher.expect_function("f");
  while (dispatcher.ready_workers() < 2) std::this_thread::sleep_for(1ms);
  // Known to both sides only now.
  dispatcher.expect_function("g");
  const std::string error = message_of<NotFound>([&] { dispatcher.join(); });
  EXPECT_NE(error.find("worker:1 has no function \"g\""), std::string::npos) << error;
  // The other one goes on.
  EXPECT_EQ(dispatcher.schedule("g", "x").wait(), "x");
}

TEST(Closures, AWorkerThatLacksAFunctionIsRefusedAndAnotherProcessMayTakeItsPlace) {
  Worker without(0, echo, {"f"});
  Worker with(0, echo, {"f", "g"});
  std::atomic<const Worker*> there{&without};
  auto options = options_for({&without});
  options.locate = [&](int, std::string&) { return std::optional(there.load()->endpoint()); };
  ClosureDispatcher dispatcher(options);
  dispatcher.expect_function("g");
  EXPECT_THROW(dispatcher.schedule("g", "").wait(), Cancelled);
  EXPECT_THROW(dispatcher.join(), NotFound);
  // It is not asked again, and said only once.
  const auto handle = dispatcher.schedule("g", "x");
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(dispatcher.done());
  there = &with;
  EXPECT_EQ(handle.wait(), "x");
  ClosureDispatcher(options_for({&without})).finish({});
}

TEST(Closures, WithoutAnyWorkerJoinNamesThemAndGivesUp) {
  auto options = options_for({});
  options.workers = {"worker:0", "worker:1"};
  options.all_workers_timeout = 200ms;
  options.locate = [](int worker, std::string& why) -> std::optional<ClosureEndpoint> {
    why = worker == 0 ? "is rebooting" : "is on holiday";
    return std::nullopt;
  };
  ClosureDispatcher dispatcher(options);
  const auto handle = dispatcher.schedule("f", "");
  EXPECT_FALSE(dispatcher.done());
  for (const std::string& error : {message_of<Unavailable>([&] { dispatcher.join(); }),
                                   message_of<Unavailable>([&] { handle.wait(); })}) {
    EXPECT_NE(error.find("worker:0 (is rebooting), worker:1 (is on holiday)"), std::string::npos) << error;
  }
}

TEST(Closures, ThatAreNotOverWhenTheDispatcherGoesAreCancelled) {
  Gate begun;
  Gate release;
  Worker worker(0, [&](const ClosureRequest& request) {
    begun.open();
    release.wait();
    return echo(request);
  });
  auto dispatcher = std::make_unique<ClosureDispatcher>(options_for({&worker}));
  const auto first = dispatcher->schedule("f", "");
  const auto second = dispatcher->schedule("f", "");
  begun.wait();
  dispatcher.reset();
  EXPECT_THROW(first.wait(), Cancelled);
  EXPECT_THROW(second.wait(), Cancelled);
  release.open();
  worker.wait();
}

TEST(Closures, AWorkerIsToldThatItsCoordinatorFailed) {
  Worker worker(0, echo);
  ClosureDispatcher dispatcher(options_for({&worker}));
  dispatcher.schedule("f", "").wait();
  dispatcher.finish("no space left");
  const std::string error = message_of<Aborted>([&] { worker.wait(); });
  EXPECT_NE(error.find("no space left"), std::string::npos) << error;
}

TEST(Closures, AWorkerGivesUpWhenNoCoordinatorComes) {
  ClosureServer server({.worker = 3, .cluster_id = kClosureCluster, .key = kKey});
  const std::string error =
      message_of<Unavailable>([&] { server.serve({.run = echo, .coordinator_timeout = 50ms}); });
  EXPECT_NE(error.find("worker 3"), std::string::npos) << error;
}

// Strangers

FileDescriptor dial(int port) {
  const SocketAddress address = resolve_host("127.0.0.1", port).front();
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.get(), address.get(), address.length), 0);
  return socket;
}

TEST(Closures, GarbageOnThePortIsTurnedAwayAndNobodyNotices) {
  Worker worker(0, echo);
  ClosureDispatcher dispatcher(options_for({&worker}));
  EXPECT_EQ(dispatcher.schedule("f", "before").wait(), "before");
  std::mt19937 random(1);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 200; ++i) {
    FileDescriptor socket = dial(worker.port());
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 2 == 0) bytes.insert(0, "TANDEM01");
    [[maybe_unused]] const auto sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 3 == 0) silent.push_back(std::move(socket));  // more than may wait at once
    if (i % 20 == 0) {
      EXPECT_EQ(dispatcher.schedule("f", std::to_string(i)).wait(), std::to_string(i));
    }
  }
  EXPECT_EQ(dispatcher.schedule("f", "after").wait(), "after");
}

TEST(Closures, AStrangerWithAnotherKeyIsNoCoordinator) {
  Worker worker(0, echo);
  auto options = options_for({&worker});
  options.locate = [&](int, std::string&) {
    return std::optional(ClosureEndpoint{worker.endpoint().address, std::string(32, 'x')});
  };
  options.all_workers_timeout = 300ms;
  {
    ClosureDispatcher stranger(options);
    const auto handle = stranger.schedule("f", "");
    EXPECT_THROW(stranger.join(), Unavailable);
  }
  ClosureDispatcher dispatcher(options_for({&worker}));
  EXPECT_EQ(dispatcher.schedule("f", "x").wait(), "x");
}

// One who knows the key, and says what he likes.
class RawCoordinator {
 public:
  explicit RawCoordinator(int port) {
    auto handshake =
        tcp::Handshake::dial(tcp::Channel(dial(port), nullptr, false), identity_, kCoordinatorMember, 0);
    while (!handshake.step()) wait(handshake.descriptor(), handshake.events());
    channel_ = handshake.take();
  }
  void send(const std::string& bytes) {
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    channel_.write(&part, 1);
  }
  // The worker has said that it is ready, or anything.
  bool hears_something() { return wait(channel_.descriptor(), POLLIN); }
  // True if it is, in time.
  bool is_closed_by_the_other_side() {
    std::array<char, 4096> ignored;
    try {
      while (true) {
        if (channel_.read(ignored.data(), ignored.size()) == 0 && !wait(channel_.descriptor(), POLLIN)) {
          return false;
        }
      }
    } catch (const tcp::ChannelClosed&) {
      return true;
    }
  }

 private:
  static bool wait(int descriptor, short events) {
    pollfd polled{descriptor, events, 0};
    return poll(&polled, 1, 10'000) > 0;
  }

  const tcp::GroupIdentity identity_ = closure_identity(kClosureCluster, kKey);
  tcp::Channel channel_;
};

TEST(Closures, AnotherCoordinatorWaitsUntilWhatRunsForTheFirstIsOver) {
  Gate begun;
  Gate release;
  Worker worker(0, [&](const ClosureRequest& request) {
    if (request.arguments == "old") {
      begun.open();
      release.wait();
    }
    return echo(request);
  });
  {
    RawCoordinator first(worker.port());
    ASSERT_TRUE(first.hears_something());
    const std::string call = encode_call({.function = "f", .arguments = "old"});
    first.send(encode_header({.kind = ClosureMessageKind::kRun, .closure = 1, .settled_below = 1}, call) +
               call);
    begun.wait();
  }  // gone, without a goodbye
  ClosureDispatcher second(options_for({&worker}));
  const auto handle = second.schedule("f", "new");
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(second.ready_workers(), 0);
  EXPECT_FALSE(handle.done());
  release.open();
  EXPECT_EQ(handle.wait(), "new");
}

TEST(Closures, ACoordinatorThatTalksNonsenseIsDisconnectedAndTheWorkerGoesOn) {
  Worker worker(0, echo);
  std::mt19937 random(2);
  const std::string run =
      encode_header({.kind = ClosureMessageKind::kRun, .closure = 1, .settled_below = 1}, "");
  std::vector<std::string> nonsense{
      std::string(100, '\0'),
      encode_header({.kind = ClosureMessageKind::kPong}, ""),
      encode_header({.kind = ClosureMessageKind::kResult, .closure = 1}, "x") + "x",
      encode_header({.kind = ClosureMessageKind::kGoodbye}, "x") + "y",  // another checksum
      run,                                                               // without a function
  };
  for (int i = 0; i < 50; ++i) {
    std::string bytes(40 + random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    nonsense.push_back(bytes);
  }
  for (const std::string& bytes : nonsense) {
    RawCoordinator raw(worker.port());
    raw.send(bytes);
    EXPECT_TRUE(raw.is_closed_by_the_other_side());
  }
  // A gigabyte is announced, and never comes.
  RawCoordinator raw(worker.port());
  std::string huge = encode_header({.kind = ClosureMessageKind::kRun, .closure = 1, .settled_below = 1}, "");
  const std::uint64_t bytes = kMostClosureBytes;
  std::memcpy(huge.data() + 24, &bytes, sizeof bytes);
  raw.send(huge);
  EXPECT_TRUE(raw.is_closed_by_the_other_side());  // the checksum
  ClosureDispatcher dispatcher(options_for({&worker}));
  EXPECT_EQ(dispatcher.schedule("f", "x").wait(), "x");
}

}  // namespace
}  // namespace tandem::internal::ps
