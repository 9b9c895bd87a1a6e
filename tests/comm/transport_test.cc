// The tcp engine's own promises: strangers stay out, members that disagree find out, whoever waits is woken.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <typeinfo>

#include "base/file_descriptor.h"
#include "base/hmac.h"
#include "base/net.h"
#include "comm/backends.h"
#include "comm/choose_algorithm.h"
#include "comm/group_of_threads.h"
#include "comm/tcp/frame.h"
#include "comm/tcp/handshake.h"
#include "support/errors.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem::testing_support {
namespace {

using internal::DataPort;
using internal::FileDescriptor;
using internal::GroupSetup;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// How each member ended: what it threw, and after how long.
struct Ending {
  std::optional<ErrorCode> code = {};
  std::string message = {};
  double seconds = 0;
};

std::vector<Ending> run_members(std::vector<GroupSetup> setups, const CommunicationOptions& options,
                                const std::function<void(Communicator&)>& fn) {
  std::vector<Ending> endings(setups.size());
  std::vector<std::thread> threads;
  const auto start = steady_clock::now();
  for (auto& setup : setups) {
    threads.emplace_back([&, setup = std::move(setup)]() mutable {
      Ending& ending = endings[static_cast<std::size_t>(setup.rank)];
      try {
        Communicator group = internal::join_group(std::move(setup), options);
        fn(group);
      } catch (const Error& error) {
        ending.code = error.code();
        ending.message = error.what();
        EXPECT_NE(typeid(error), typeid(Error)) << "callers catch by the kind of error";
      }
      ending.seconds = seconds_since(start);
    });
  }
  for (auto& thread : threads) thread.join();
  return endings;
}

std::vector<Ending> run_members(int size, const std::function<void(Communicator&)>& fn,
                                const CommunicationOptions& options = {}) {
  return run_members(loopback_group(size), options, fn);
}

void sum(Communicator& group, const std::string& name, std::int64_t count,
         ElementType type = ElementType::kFloat32) {
  std::vector<char> values(static_cast<std::size_t>(count) * element_size(type));
  group.all_reduce(name, {values.data(), count, type});
}

FileDescriptor connect_to(const std::string& address) {
  const HostPort target = parse_address(address, "test");
  const internal::SocketAddress resolved = internal::resolve_host(target.host, target.port).front();
  FileDescriptor connection(socket(resolved.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(connection.get(), resolved.get(), resolved.length) != 0) return {};
  return connection;
}

TEST(Transport, SaysWhoIsInWhichOperationWhenTheSizesDiffer) {
  const auto endings = run_members(3, [](Communicator& group) {
    sum(group, "warm-up", 10);
    sum(group, "gradients", group.rank() == 1 ? 1001 : 1000);
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::kFailedPrecondition) << ending.message;
    EXPECT_NE(ending.message.find("worker:1"), std::string::npos) << ending.message;
    EXPECT_NE(ending.message.find("all_reduce \"gradients\" #2 of 1001 float32"), std::string::npos)
        << ending.message;
    EXPECT_NE(ending.message.find("all_reduce \"gradients\" #2 of 1000 float32"), std::string::npos)
        << ending.message;
    EXPECT_LT(ending.seconds, 1);
  }
}

TEST(Transport, SaysSoWhenTypesNamesOrKindsDiffer) {
  const std::vector<std::function<void(Communicator&)>> second = {
      [](Communicator& group) { sum(group, "a", 100, ElementType::kFloat64); },
      [](Communicator& group) { sum(group, "b", 100); },
      [](Communicator& group) { group.barrier("a"); },
      [](Communicator& group) {
        std::vector<float> values(100);
        group.broadcast("a", {values.data(), 100, ElementType::kFloat32}, 0);
      },
      [](Communicator& group) {
        std::vector<float> values(100);
        group.send("a", {values.data(), 100, ElementType::kFloat32}, 0);
      },
  };
  for (std::size_t i = 0; i < second.size(); ++i) {
    const auto endings = run_members(2, [&](Communicator& group) {
      if (group.rank() == 0) return sum(group, "a", 100);
      second[i](group);
      sum(group, "later", 1);
    });
    EXPECT_EQ(endings[0].code, ErrorCode::kFailedPrecondition) << i << ": " << endings[0].message;
    EXPECT_NE(endings[0].message.find("same order"), std::string::npos) << i << ": " << endings[0].message;
    EXPECT_LT(endings[0].seconds, 1) << i;
  }
}

TEST(Transport, FindsAMemberThatHasGoneOnWithoutACollective) {
  const auto endings = run_members(2, [](Communicator& group) {
    if (group.rank() == 0) sum(group, "only here", 0x10000);
    sum(group, "everywhere", 100);
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::kFailedPrecondition) << ending.message;
    EXPECT_NE(ending.message.find("\"only here\""), std::string::npos) << ending.message;
    EXPECT_NE(ending.message.find("\"everywhere\""), std::string::npos) << ending.message;
  }
}

TEST(Transport, FindsAMemberThatHasEnded) {
  const auto endings = run_members(2, [](Communicator& group) {
    if (group.rank() == 0) sum(group, "only here", 100);
  });
  EXPECT_EQ(endings[0].code, ErrorCode::kFailedPrecondition);
  EXPECT_NE(endings[0].message.find("worker:1 has ended while worker:0 waits"), std::string::npos)
      << endings[0].message;
  EXPECT_EQ(endings[1].code, std::nullopt);
}

TEST(Transport, KeepsADeadlineAndNamesWhoIsWaitedFor) {
  const auto endings = run_members(3,
                                   [](Communicator& group) {
                                     if (group.rank() == 2) std::this_thread::sleep_for(milliseconds(700));
                                     sum(group, "gradients", 1000);
                                   },
                                   {.timeout = milliseconds(200)});
  for (const int rank : {0, 1}) {
    const Ending& ending = endings[static_cast<std::size_t>(rank)];
    EXPECT_EQ(ending.code, ErrorCode::kDeadlineExceeded) << ending.message;
    EXPECT_NE(ending.message.find("waited 0.2 s in all_reduce \"gradients\" #1"), std::string::npos)
        << ending.message;
    EXPECT_LT(ending.seconds, 0.6);
  }
  // Whoever comes late is told why there is nobody left.
  EXPECT_EQ(endings[2].code, ErrorCode::kDeadlineExceeded) << endings[2].message;
}

TEST(Transport, WakesEveryWaiterOnAbortAndPassesTheReasonOn) {
  const auto endings = run_members(4, [](Communicator& group) {
    if (group.rank() == 3) {
      std::this_thread::sleep_for(milliseconds(100));
      group.abort("the loss is nan at step 7");
    }
    sum(group, "gradients", 100000);
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::kAborted);
    EXPECT_EQ(ending.message, "the loss is nan at step 7");
    EXPECT_LT(ending.seconds, 1);
  }
}

TEST(Transport, ThrowsTheErrorThatCameWithAnAbort) {
  run_members(2, [](Communicator& group) {
    if (group.rank() == 1) return std::this_thread::sleep_for(milliseconds(300));
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(50));
      group.abort("lost", std::make_exception_ptr(Unavailable("worker:1 is dead")));
    });
    EXPECT_EQ(message_of<Unavailable>([&] { sum(group, "gradients", 100); }), "worker:1 is dead");
    EXPECT_EQ(message_of<Unavailable>([&] { sum(group, "again", 100); }), "worker:1 is dead");
    other.join();
  });
}

TEST(Transport, DoesNotWaitForACollectiveThatIsUnderWay) {
  run_group(2, {}, [](Communicator& group) {
    std::vector<float> first(1000, 1), second(1000, 2);
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(200));
    const auto start = steady_clock::now();
    const Pending a = group.all_reduce_async("a", {first.data(), 1000, ElementType::kFloat32});
    const Pending b = group.all_reduce_async("b", {second.data(), 1000, ElementType::kFloat32});
    EXPECT_LT(seconds_since(start), 0.1);
    if (group.rank() == 0) {
      EXPECT_THROW(b.wait(milliseconds(20)), DeadlineExceeded);
    }
    // A call that waits keeps its place behind those.
    std::vector<float> third(10, 3);
    group.all_reduce("c", {third.data(), 10, ElementType::kFloat32});
    EXPECT_TRUE(a.done() && b.done());
    b.wait();
    EXPECT_EQ(first[999], 2);
    EXPECT_EQ(second[0], 4);
    EXPECT_EQ(third[9], 6);
  });
}

TEST(ChooseAlgorithm, GoesBySizeAndNumberOfTasksAndSaysSo) {
  constexpr std::size_t kMiB = 1 << 20;
  EXPECT_EQ(internal::choose_algorithm(4096, 2, false), AllReduceAlgorithm::kBcube);
  EXPECT_EQ(internal::choose_algorithm(2 * kMiB, 8, false), AllReduceAlgorithm::kBcube);
  EXPECT_EQ(internal::choose_algorithm(4 * kMiB, 2, false), AllReduceAlgorithm::kRing);
  EXPECT_EQ(internal::choose_algorithm(4 * kMiB, 4, false), AllReduceAlgorithm::kRingChunked);
  EXPECT_EQ(internal::choose_algorithm(4 * kMiB, 4, true), AllReduceAlgorithm::kBcube);
  EXPECT_EQ(internal::choose_algorithm(64 * kMiB, 4, false), AllReduceAlgorithm::kRing);
  EXPECT_EQ(internal::describe_choice(4, false), "bcube up to 2 MiB, ring_chunked up to 8 MiB, ring above");
}

TEST(Transport, CountsTheBytesOfARing) {
  for (const int size : {2, 4}) {
    run_group(size, {.algorithm = AllReduceAlgorithm::kRing}, [&](Communicator& group) {
      const std::int64_t count = 1 << 16;
      const Traffic before = group.traffic();
      sum(group, "gradients", count);
      const auto bytes = static_cast<double>(count * 4);
      EXPECT_EQ(static_cast<double>(group.traffic().bytes_sent - before.bytes_sent),
                2 * (size - 1) * bytes / size);
    });
  }
}

TEST(Transport, EncryptsWhenAskedTo) {
  auto setups = loopback_group(3, std::string(32, 'k'));
  for (auto& setup : setups) setup.encrypt = true;
  const auto endings = run_members(std::move(setups), {}, [](Communicator& group) {
    for (const std::int64_t count : {1, 1000, 1000000}) {
      std::vector<float> values(static_cast<std::size_t>(count), static_cast<float>(group.rank()));
      group.all_reduce("sum", {values.data(), count, ElementType::kFloat32});
      EXPECT_EQ(values.front(), 3);
      EXPECT_EQ(values.back(), 3);
    }
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.code, std::nullopt) << ending.message;
}

// Member 1 of 2 with one thing wrong: member 0 must not take it.
void expect_turned_away(const std::function<void(GroupSetup&)>& spoil) {
  auto setups = loopback_group(2, std::string(32, 'k'));
  for (auto& setup : setups) setup.connect_timeout = milliseconds(400);
  spoil(setups[1]);
  for (const Ending& ending : run_members(std::move(setups), {}, [](Communicator&) {})) {
    EXPECT_EQ(ending.code, ErrorCode::kUnavailable) << ending.message;
    EXPECT_NE(ending.message.find("has no data connection to worker:"), std::string::npos) << ending.message;
  }
}

TEST(Transport, TakesNoMemberOfAnotherKeyClusterGenerationOrWithoutEncryption) {
  expect_turned_away([](GroupSetup& setup) { setup.key = std::string(32, 'x'); });
  expect_turned_away([](GroupSetup& setup) { setup.cluster_id = "another"; });
  expect_turned_away([](GroupSetup& setup) { ++setup.generation; });
  expect_turned_away([](GroupSetup& setup) { setup.encrypt = true; });
}

TEST(Transport, FormsUnderHostileConnections) {
  const char* wanted = std::getenv("TANDEM_HOSTILE");
  const int connects = wanted ? std::atoi(wanted) : 1000;
  auto setups = loopback_group(2);
  const std::string address = setups[0].members[0].data_address;
  GroupSetup last = std::move(setups[1]);
  setups.pop_back();
  std::atomic<bool> formed{false};
  std::thread first([&] {
    Communicator group = internal::join_group(std::move(setups[0]), {});
    formed = true;
    sum(group, "gradients", 100);
  });
  // A fiftieth stays open and says nothing; the others say something wrong.
  std::vector<FileDescriptor> slow;
  for (int i = 0; i < connects; ++i) {
    FileDescriptor connection = connect_to(address);
    ASSERT_TRUE(connection);
    if (i % 50 == 0) {
      slow.push_back(std::move(connection));
      continue;
    }
    std::string garbage(static_cast<std::size_t>(1 + i % 300), '\0');
    internal::random_bytes(garbage.data(), garbage.size());
    if (i % 3 == 0) garbage = "TANDEM01" + garbage;
    send(connection.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  EXPECT_FALSE(formed);
  const auto start = steady_clock::now();
  Communicator group = internal::join_group(std::move(last), {});
  const double delay = seconds_since(start);
  EXPECT_LT(delay, 1);
  sum(group, "gradients", 100);
  first.join();
  std::printf("%d hostile connections: formed after %.0f ms\n", connects, delay * 1000);
}

// A member that knows the key, and then sends what it likes.
class Rogue {
 public:
  explicit Rogue(const GroupSetup& setup)
      : group_{setup.cluster_id, setup.generation, setup.key,
               static_cast<std::uint32_t>(setup.members.size())},
        handshake_(internal::tcp::Handshake::dial(
            internal::tcp::Channel(connect_to(setup.members[0].data_address), nullptr, false), group_, 1,
            0)) {
    const auto until = steady_clock::now() + std::chrono::seconds(5);
    while (!handshake_.step() && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    channel_ = handshake_.take();
  }
  void say(const void* data, std::size_t bytes) {
    const iovec part{const_cast<void*>(data), bytes};
    channel_.write(&part, 1);
  }

 private:
  internal::tcp::GroupIdentity group_;
  internal::tcp::Handshake handshake_;
  internal::tcp::Channel channel_;
};

// What member 0 says of a frame of member 1 while it waits for its part of a sum of 1000 floats.
std::string answer_to(const std::function<void(internal::tcp::FrameHeader&)>& spoil) {
  auto setups = loopback_group(2);
  GroupSetup rogue_setup = std::move(setups[1]);
  setups.pop_back();
  std::string message;
  std::thread honest([&] {
    Communicator group = internal::join_group(
        std::move(setups[0]), {.timeout = milliseconds(3000), .algorithm = AllReduceAlgorithm::kRing});
    message = message_of<Error>([&] { sum(group, "gradients", 1000); });
  });
  Rogue rogue(rogue_setup);
  internal::tcp::FrameHeader header;
  header.operation = internal::OperationKind::kAllReduce;
  header.type = ElementType::kFloat32;
  header.algorithm = AllReduceAlgorithm::kRing;
  header.sequence = 2;
  header.count = 1000;
  header.slot = 0;
  std::memcpy(header.name.data(), "gradients", 9);
  spoil(header);
  rogue.say(&header, sizeof header);
  honest.join();
  return message;
}

TEST(Transport, WritesNowhereButWhereAReceiveIsPosted) {
  using internal::tcp::FrameKind;
  EXPECT_NE(
      answer_to([](auto& header) { header.kind = static_cast<FrameKind>(77); }).find("what is no frame"),
      std::string::npos);
  EXPECT_NE(answer_to([](auto& header) {
              header.kind = FrameKind::kAbort;
              header.length = 1 << 30;
            }).find("a reason that is too long"),
            std::string::npos);
  // A slot that nobody waits at: held back, and the sum runs into its deadline.
  EXPECT_NE(answer_to([](auto& header) {
              header.slot = 12345;
              header.length = std::uint64_t{1} << 40;
            }).find("waited 3.0 s"),
            std::string::npos);
}

TEST(Transport, DiesOfNoPeer) {
  auto setups = loopback_group(3);
  std::vector<Ending> endings(3);
  std::vector<std::thread> threads;
  for (auto& setup : setups) {
    threads.emplace_back([&, setup = std::move(setup)]() mutable {
      const int rank = setup.rank;
      try {
        Communicator group = internal::join_group(std::move(setup), {});
        for (int i = 0; i < 200; ++i) {
          if (rank == 2 && i == 100) throw std::runtime_error("gone");  // unwinds: aborted, not said goodbye
          sum(group, "gradients", 100000);
        }
      } catch (const Error& error) {
        endings[static_cast<std::size_t>(rank)] = {error.code(), error.what()};
      } catch (const std::runtime_error&) {
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int rank : {0, 1}) {
    EXPECT_NE(endings[static_cast<std::size_t>(rank)].message.find("worker:2"), std::string::npos)
        << endings[static_cast<std::size_t>(rank)].message;
  }
}

}  // namespace
}  // namespace tandem::testing_support
