#include "comm/collectives.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>

#include "comm/backends.h"
#include "comm/group_of_threads.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using namespace testing_support;
using Clock = std::chrono::steady_clock;

std::string name_of(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::kAuto:
      return "Auto";
    case AllReduceAlgorithm::kRing:
      return "Ring";
    case AllReduceAlgorithm::kRingChunked:
      return "RingChunked";
    case AllReduceAlgorithm::kHalvingDoubling:
      return "HalvingDoubling";
    case AllReduceAlgorithm::kBcube:
      return "Bcube";
  }
  return "";
}

const auto kEngines = testing::Values("tcp", "gloo");

struct EngineAndSize {
  const char* engine;
  int size;
};
// Gloo's own transport wants a core for each of its threads; the algorithms are the same.
constexpr EngineAndSize kGroups[] = {{"tcp", 2}, {"tcp", 3},  {"tcp", 4}, {"tcp", 5},
                                     {"tcp", 8}, {"gloo", 2}, {"gloo", 3}};

std::string name_of(const EngineAndSize& group) {
  return std::string(group.engine) + "_" + std::to_string(group.size);
}

class EveryAlgorithm : public testing::TestWithParam<std::tuple<EngineAndSize, AllReduceAlgorithm>> {
 protected:
  void run(const std::function<void(Communicator&)>& fn) {
    const auto& [group, algorithm] = GetParam();
    run_group(group.size, {.algorithm = algorithm, .engine = group.engine}, fn);
  }
};

INSTANTIATE_TEST_SUITE_P(Collectives, EveryAlgorithm,
                         testing::Combine(testing::ValuesIn(kGroups), testing::ValuesIn(kAlgorithms)),
                         [](const auto& info) {
                           return name_of(std::get<0>(info.param)) + "_" + name_of(std::get<1>(info.param));
                         });

TEST_P(EveryAlgorithm, SumsEveryType) {
  run(check_all_reduce);
}

TEST_P(EveryAlgorithm, GivesAllMembersTheSameBits) {
  run(check_equal_bits);
}

TEST_P(EveryAlgorithm, CanBeManyAtOnce) {
  run(check_many_at_once);
}

class EveryOperation : public testing::TestWithParam<std::tuple<EngineAndSize, Check>> {};

INSTANTIATE_TEST_SUITE_P(Collectives, EveryOperation,
                         testing::Combine(testing::ValuesIn(kGroups), testing::ValuesIn(kChecks)),
                         [](const auto& info) {
                           return name_of(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
                         });

TEST_P(EveryOperation, DoesWhatItSays) {
  const auto& [group, check] = GetParam();
  run_group(group.size, {.engine = group.engine}, check.run);
}

class EveryEngine : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Collectives, EveryEngine, kEngines,
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EveryEngine, TellsWhoIsWho) {
  run_group(3, {.engine = GetParam()}, [&](Communicator& group) {
    EXPECT_EQ(group.size(), 3);
    EXPECT_EQ(group.engine(), GetParam());
  });
}

TEST_P(EveryEngine, CountsWhatARingSends) {
  constexpr std::int64_t kCount = 400000;
  for (const int size : {2, 4}) {
    run_group(size, {.algorithm = AllReduceAlgorithm::kRing, .engine = GetParam()}, [&](Communicator& group) {
      Values values = Values::of_member(group.rank(), ElementType::kFloat32, kCount);
      const Traffic before = group.traffic();
      group.all_reduce("counted", values.elements());
      const Traffic after = group.traffic();
      const double share = 2.0 * (size - 1) / size * static_cast<double>(values.bytes().size());
      EXPECT_EQ(after.operations - before.operations, 1U);
      EXPECT_NEAR(static_cast<double>(after.bytes_sent - before.bytes_sent), share, 0.01 * share);
      EXPECT_NEAR(static_cast<double>(after.bytes_received - before.bytes_received), share, 0.01 * share);
    });
  }
}

TEST_P(EveryEngine, ThrowsAtTheDeadlineIfAMemberStaysAway) {
  constexpr auto kTimeout = std::chrono::milliseconds(300);
  for (const auto algorithm : {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kHalvingDoubling}) {
    std::atomic<int> thrown = 0;
    run_group(3, {.timeout = kTimeout, .algorithm = algorithm, .engine = GetParam()},
              [&](Communicator& group) {
                group.barrier("all are there");
                if (group.rank() == 2) {
                  while (thrown < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                  return;
                }
                Values values = Values::of_member(group.rank(), ElementType::kFloat32, 100003);
                const auto before = Clock::now();
                try {
                  group.all_reduce("gradients", values.elements());
                  ADD_FAILURE() << "summed without member 2";
                } catch (const DeadlineExceeded& error) {
                  EXPECT_NE(std::string(error.what()).find("gradients"), std::string::npos) << error.what();
                } catch (const Error&) {  // the other one gave up a moment before, and went
                }
                ++thrown;
                EXPECT_GE(Clock::now() - before, kTimeout / 2);
                EXPECT_LT(Clock::now() - before, kTimeout + std::chrono::seconds(1));
              });
  }
}

TEST_P(EveryEngine, WakesEveryoneWhenOneAborts) {
  for (const auto algorithm : {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kRingChunked,
                               AllReduceAlgorithm::kHalvingDoubling, AllReduceAlgorithm::kBcube}) {
    std::atomic<Clock::duration::rep> aborted_at = 0;
    run_group(4, {.algorithm = algorithm, .engine = GetParam()}, [&](Communicator& group) {
      Values values = Values::of_member(group.rank(), ElementType::kFloat32, 1000003);
      group.all_reduce("warm", values.elements());
      // Member 3 stays away; member 0 gives up in the middle.
      if (group.rank() == 3) {
        while (aborted_at == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      const Pending pending = group.all_reduce_async("gradients", values.elements());
      if (group.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        aborted_at = Clock::now().time_since_epoch().count();
        group.abort("worker:9 is lost");
        EXPECT_NE(message_of<Aborted>([&] { pending.wait(); }).find("worker:9 is lost"), std::string::npos);
        EXPECT_NE(message_of<Aborted>([&] { group.barrier("later"); }).find("worker:9 is lost"),
                  std::string::npos);
      } else {
        EXPECT_THROW(pending.wait(), Error);
      }
      EXPECT_LT(Clock::now().time_since_epoch() - Clock::duration(aborted_at), std::chrono::seconds(1));
    });
  }
}

TEST_P(EveryEngine, NamesTheDataAddressThatNobodyAnswersAt) {
  auto setups = loopback_group(2);
  setups[0].connect_timeout = std::chrono::milliseconds(300);
  const auto before = Clock::now();
  const std::string message =
      message_of<Unavailable>([&] { internal::join_group(std::move(setups[0]), {.engine = GetParam()}); });
  EXPECT_NE(message.find("worker:1"), std::string::npos) << message;
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(5));
}

TEST_P(EveryEngine, RefusesAMemberWithAnotherKey) {
  auto setups = loopback_group(2);
  setups[1].key = "another key";
  std::vector<std::thread> threads;
  for (auto& setup : setups) {
    setup.connect_timeout = std::chrono::milliseconds(500);
    threads.emplace_back([&, setup = std::move(setup)]() mutable {
      EXPECT_THROW(internal::join_group(std::move(setup), {.engine = GetParam()}), Error);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Gloo, IsRefusedWhereStrangersCouldReachIt) {
  auto setups = loopback_group(2);
  setups[0].members[1].data_address = "192.0.2.7:4000";
  const std::string message =
      message_of<InvalidArgument>([&] { internal::join_group(std::move(setups[0]), {.engine = "gloo"}); });
  EXPECT_NE(message.find("worker:1 is at 192.0.2.7:4000"), std::string::npos) << message;
  EXPECT_NE(message.find("use engine \"tcp\""), std::string::npos) << message;

  setups[1].members[0].data_address = "192.0.2.7:4000";
  setups[1].trusted_network = true;
  setups[1].connect_timeout = std::chrono::milliseconds(100);
  EXPECT_THROW(internal::join_group(std::move(setups[1]), {.engine = "gloo"}), Unavailable);
}

TEST(Nccl, SaysWhyItIsNotThere) {
  if (internal::nccl::available()) GTEST_SKIP() << "there is a GPU";
  auto setups = loopback_group(1);
  const std::string message =
      message_of<Unimplemented>([&] { internal::join_group(std::move(setups[0]), {.engine = "nccl"}); });
  EXPECT_NE(message.find("nccl"), std::string::npos) << message;
}

}  // namespace
}  // namespace tandem
