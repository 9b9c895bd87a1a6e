#include "ps/ps_service.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>

#include "base/log.h"
#include "base/net.h"
#include "comm/bfloat16.h"
#include "comm/tcp/handshake.h"
#include "ps/ps_state.h"
#include "ps_service/raw_peer.h"
#include "ps_service/servers.h"
#include "support/errors.h"
#include "support/push_entries.h"
#include "support/temp_folder.h"

namespace tandem::internal::ps {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

TEST(PsService, AddsWhatIsPushedAndAnswersWithTheSums) {
  const PlacementPlan plan = small_plan();
  Servers servers(2, {.workers = 2});
  auto worker = servers.client(plan, 1);
  auto chief = servers.chief(plan);
  worker->wait_until_ready();
  const std::vector<float> w0(12, 1.5f), b(3, 2.0f);
  const std::vector<double> d(4, 0.25);
  const std::vector<Gradient> gradients{{.shard = 0, .values = bytes_of(w0)},
                                        {.shard = 2, .values = bytes_of(b)},
                                        {.shard = 4, .values = bytes_of(d)}};
  chief->push_async({.step = 0}, gradients).wait(5s);
  const PsOutcome outcome = worker->push_async({.step = 0}, gradients).wait(5s);
  EXPECT_EQ(outcome.status, Status::kApplied);
  EXPECT_EQ(outcome.global_step, 2u);
  // Rows 0 and 2 of the second part.
  const std::vector<std::int64_t> rows{0, 2};
  const std::vector<float> two_rows{1, 2, 3, 4, 5, 6, 7, 8};
  const Gradient sparse{.shard = 1, .values = bytes_of(two_rows), .row_ids = rows};
  EXPECT_EQ(worker->push_async({.step = 1}, std::span(&sparse, 1)).wait(5s).global_step, 3u);

  Values pulled(plan);
  chief->pull_async(1, pulled.targets()).wait(5s);
  EXPECT_EQ(pulled.floats(0)[11], 3.0f);
  EXPECT_EQ(std::vector(pulled.floats(1), pulled.floats(1) + 12),
            (std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8}));
  EXPECT_EQ(pulled.floats(2)[2], 4.0f);
  EXPECT_EQ(pulled.doubles(4)[3], 0.5);

  std::vector<float> one_row(4);
  const std::vector<std::int64_t> last{2};
  const PullTarget target{.shard = 1, .values = std::as_writable_bytes(std::span(one_row)), .row_ids = last};
  worker->pull_async(2, std::span(&target, 1)).wait(5s);
  EXPECT_EQ(one_row, (std::vector<float>{5, 6, 7, 8}));

  EXPECT_FALSE(servers.services[0]->join(0ms));
  chief->finish(5s);
  worker->finish(5s);
  for (auto& service : servers.services) EXPECT_TRUE(service->join(1s));
  const PsCounters counters = servers.services[0]->counters();
  EXPECT_EQ(counters.pushes, 3u);
  EXPECT_EQ(counters.updates, 3u);
  EXPECT_GE(counters.pulls, 1u);
  EXPECT_EQ(counters.refused, 0u);
  EXPECT_EQ(std::accumulate(counters.staleness.begin(), counters.staleness.end(), std::uint64_t{0}), 3u);
}

TEST(PsService, SixteenBitsTravelBothWays) {
  const PlacementPlan plan = small_plan();
  Servers servers(2);
  auto chief = servers.chief(plan, {.bfloat16 = true});
  std::vector<float> w0(12);
  std::iota(w0.begin(), w0.end(), 0.1f);
  const std::vector<double> d(4, 1.0 / 3);
  const std::vector<Gradient> gradients{{.shard = 0, .values = bytes_of(w0)},
                                        {.shard = 4, .values = bytes_of(d)}};
  chief->push_async({}, gradients).wait(5s);
  Values pulled(plan);
  chief->pull_async(1, pulled.targets()).wait(5s);
  for (std::size_t i = 0; i < w0.size(); ++i) {
    EXPECT_EQ(pulled.floats(0)[i], static_cast<float>(Bfloat16(w0[i]))) << i;
  }
  EXPECT_EQ(pulled.doubles(4)[0], 1.0 / 3);
}

TEST(PsService, SpeaksEncrypted) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.encrypt = true});
  auto chief = servers.chief(plan, {.encrypt = true});
  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 3, .values = bytes_of(ones)};
  chief->push_async({}, std::span(&gradient, 1)).wait(5s);
  Values pulled(plan);
  chief->pull_async(1, pulled.targets()).wait(5s);
  EXPECT_EQ(pulled.floats(3)[kCountingElements - 1], 1.0f);
}

const Incarnation kProcess{1, 2};

// A ps with sums in it, and a worker that is admitted.
class PsBadInput : public testing::Test {
 protected:
  PsBadInput() : servers(1, {.workers = 9, .reject_not_finite = true}) {
    chief = servers.chief(plan);
    const std::vector<float> ones(kCountingElements, 1.0f);
    const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
    chief->push_async({}, std::span(&gradient, 1)).wait(5s);
  }
  // Whatever a test did: the others go on, and nothing has changed.
  ~PsBadInput() override {
    Values pulled(plan);
    chief->pull_async(1, pulled.targets()).wait(5s);
    Values expected(plan);
    std::fill_n(expected.floats(0), kCountingElements, 1.0f);
    EXPECT_EQ(pulled.shards, expected.shards);
  }

  RawPeer admitted(int worker = 5) {
    RawPeer peer(servers.addresses[0], worker);
    peer.send(encode(hello(worker)));
    EXPECT_EQ(peer.receive<HelloReply>().status, Status::kApplied);
    return peer;
  }
  Hello hello(int worker) const {
    return {
        .worker = static_cast<std::uint32_t>(worker), .incarnation = kProcess, .plan_digest = plan.digest()};
  }
  PushReplies push(RawPeer& peer, Push::Entry entry, std::span<const std::byte> payload) {
    peer.send(encode(Push{.worker = 5, .incarnation = kProcess, .seq = 1, .entries = {entry}}), payload);
    return peer.receive<PushReplies>();
  }
  void expect_refusal(const PushReplies& replies, Status status, const std::string& message) {
    EXPECT_EQ(replies.entries.at(0).status, status);
    EXPECT_EQ(replies.message, message);
  }

  const PlacementPlan plan = counting_plan(1);
  Servers servers;
  std::unique_ptr<PsClient> chief;
  std::vector<float> gradient = std::vector<float>(kCountingElements, 3.0f);
};

TEST_F(PsBadInput, AnUnknownShard) {
  RawPeer peer = admitted();
  expect_refusal(push(peer, describe_dense(4, WireType::kFloat32, bytes_of(gradient)), bytes_of(gradient)),
                 Status::kUnknownShard, "ps 0: shard 4 is not on ps 0");
}

TEST_F(PsBadInput, AWrongLength) {
  RawPeer peer = admitted();
  gradient.pop_back();
  expect_refusal(push(peer, describe_dense(0, WireType::kFloat32, bytes_of(gradient)), bytes_of(gradient)),
                 Status::kMalformed, "ps 0: a takes 5000 values: a push of 4999 was sent");
}

TEST_F(PsBadInput, AWrongType) {
  RawPeer peer = admitted();
  const std::vector<double> doubles(kCountingElements, 1.0);
  expect_refusal(push(peer, describe_dense(0, WireType::kFloat64, bytes_of(doubles)), bytes_of(doubles)),
                 Status::kMalformed, "ps 0: a is float32: a push of float64 was sent");
}

TEST_F(PsBadInput, RowsThatAreNotThere) {
  RawPeer peer = admitted();
  const std::vector<std::int64_t> rows{3, 5000};
  const std::vector<float> values{1, 2};
  std::vector<std::byte> payload(std::as_bytes(std::span(rows)).begin(),
                                 std::as_bytes(std::span(rows)).end());
  payload.insert(payload.end(), bytes_of(values).begin(), bytes_of(values).end());
  expect_refusal(push(peer, describe_rows(1, WireType::kFloat32, rows, bytes_of(values)), payload),
                 Status::kMalformed, "ps 0: b: row 5000 of a shard of 5000 rows");
}

TEST_F(PsBadInput, DamageOnTheWay) {
  RawPeer peer = admitted();
  const auto entry = describe_dense(0, WireType::kFloat32, bytes_of(gradient));
  gradient[77] = 4;
  const auto replies = push(peer, entry, bytes_of(gradient));
  EXPECT_EQ(replies.entries.at(0).status, Status::kDamaged);
  EXPECT_TRUE(replies.message.starts_with("ps 0: the gradient of a has the crc32c ")) << replies.message;
}

TEST_F(PsBadInput, NotANumber) {
  RawPeer peer = admitted();
  gradient[4000] = std::numeric_limits<float>::quiet_NaN();
  expect_refusal(push(peer, describe_dense(0, WireType::kFloat32, bytes_of(gradient)), bytes_of(gradient)),
                 Status::kRejected, "ps 0: a: the gradient of a has values that are not finite");
}

TEST_F(PsBadInput, APushWithoutHello) {
  RawPeer peer(servers.addresses[0], 5);
  expect_refusal(push(peer, describe_dense(0, WireType::kFloat32, bytes_of(gradient)), bytes_of(gradient)),
                 Status::kNotAdmitted, "ps 0: this process did not say hello, or a newer one did");
}

TEST_F(PsBadInput, AnEarlierProcessOfTheSameWorker) {
  RawPeer old = admitted();
  RawPeer newer(servers.addresses[0], 5);
  Hello hello_of_newer = hello(5);
  hello_of_newer.incarnation = {3, 4};
  newer.send(encode(hello_of_newer));
  EXPECT_EQ(newer.receive<HelloReply>().status, Status::kApplied);
  EXPECT_EQ(push(old, describe_dense(0, WireType::kFloat32, bytes_of(gradient)), bytes_of(gradient))
                .entries.at(0)
                .status,
            Status::kNotAdmitted);
  old.send(encode(hello(5)));
  EXPECT_EQ(old.receive<HelloReply>().message, "a newer process of worker 5 has taken its place");
}

TEST_F(PsBadInput, AnotherModel) {
  auto other = servers.client(small_plan(1), 3);
  const std::string message = message_of<InvalidArgument>([&] { other->wait_until_ready(); });
  EXPECT_NE(message.find("worker 3 has another model than ps 0"), std::string::npos) << message;
  auto second_chief = servers.client(small_plan(1), 4);
  EXPECT_THROW(second_chief->initialise("count", Values(small_plan(1)).spans()), InvalidArgument);
  auto other_optimizer = servers.client(plan, 4);
  const std::string why =
      message_of<InvalidArgument>([&] { other_optimizer->initialise("adam", Values(plan).spans()); });
  EXPECT_NE(why.find("was initialised with the optimizer \"count\", worker 4 has \"adam\""),
            std::string::npos)
      << why;
}

TEST_F(PsBadInput, AChiefThatComesAgainChangesNothing) {
  auto second = servers.client(plan, 4);
  second->initialise("count", Values(plan, std::byte{7}).spans());
}

TEST_F(PsBadInput, BytesThatAreNoMessage) {
  RawPeer peer = admitted();
  peer.send(std::string(100'000, 'x'));
  const auto answer = peer.receive<Answer>();
  EXPECT_EQ(answer.status, Status::kMalformed);
  EXPECT_EQ(answer.message, "not a message of a parameter server");
  peer.expect_end();
}

TEST_F(PsBadInput, SizesThatCannotBe) {
  RawPeer peer = admitted();
  std::vector<Push::Entry> entries{
      {.shard = 0, .kind = PayloadKind::kDense, .type = WireType::kFloat32, .count = std::uint64_t{1} << 39}};
  peer.send(encode(Push{.worker = 5, .incarnation = kProcess, .seq = 1, .entries = entries}));
  EXPECT_NE(peer.receive<Answer>().message.find("bytes of tensors: expected at most"), std::string::npos);
  peer.expect_end();
}

TEST_F(PsBadInput, StrangersAtThePort) {
  EXPECT_THROW(RawPeer(servers.addresses[0], 5, std::string(32, 'k')), tcp::ChannelClosed);
  EXPECT_THROW(RawPeer(servers.addresses[0], 5, kKey, std::string(32, '0')), tcp::ChannelClosed);
  const int port = servers.services[0]->port();
  const SocketAddress target = resolve_host("127.0.0.1", port).front();
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 300; ++i) {
    FileDescriptor socket(::socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(socket.get(), target.get(), target.length), 0);
    const std::string garbage(static_cast<std::size_t>(i), static_cast<char>(i));
    if (i % 3 == 0) {
      [[maybe_unused]] const auto sent = ::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    }
    if (i % 2 == 0) silent.push_back(std::move(socket));
  }
  RawPeer peer = admitted();
  gradient.pop_back();
  EXPECT_EQ(push(peer, describe_dense(0, WireType::kFloat32, bytes_of(gradient)), bytes_of(gradient))
                .entries.at(0)
                .status,
            Status::kMalformed);
}

TEST(PsService, RefusesAnOptimizerThatItsStoreDoesNotKnow) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1);
  auto chief = servers.client(plan, 0);
  const std::string message =
      message_of<InvalidArgument>([&] { chief->initialise("none", Values(plan).spans()); });
  EXPECT_NE(message.find("there is no optimizer \"none\""), std::string::npos) << message;
}

TEST(PsService, APushThatIsSentAgainCountsOnce) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1);
  auto chief = servers.chief(plan);
  const std::vector<float> ones(kCountingElements, 1.0f);
  Push push{.worker = 5, .incarnation = kProcess, .seq = 1};
  push.entries = {describe_dense(2, WireType::kFloat32, bytes_of(ones))};
  for (int i = 0; i < 3; ++i) {
    RawPeer peer(servers.addresses[0], 5);
    peer.send(encode(Hello{.worker = 5, .incarnation = kProcess, .plan_digest = plan.digest()}));
    EXPECT_EQ(peer.receive<HelloReply>().shards.at(2).last_seq, i == 0 ? 0u : 1u);
    peer.send(encode(push), bytes_of(ones));
    const auto replies = peer.receive<PushReplies>();
    EXPECT_EQ(replies.entries.at(0).status, Status::kApplied);
    EXPECT_EQ(replies.entries.at(0).repeated, i > 0);
    // One number too far.
    push.seq = 3;
    peer.send(encode(push), bytes_of(ones));
    EXPECT_EQ(peer.receive<PushReplies>().entries.at(0).status, Status::kGap);
    push.seq = 1;
  }
  EXPECT_EQ(servers.stores[0]->updates(2), 1);
}

// Sums of floats depend on their order: these do.
float addend(int worker, std::uint64_t step, std::size_t i) {
  return std::sin(static_cast<float>(1 + worker) * 1.7f + static_cast<float>(step)) *
         std::pow(10.0f, static_cast<float>((worker * 5 + static_cast<int>(i)) % 7));
}

TEST(PsService, WholeStepsAreAddedInTheOrderOfTheWorkers) {
  constexpr int kWorkers = 4;
  constexpr std::uint64_t kSteps = 30;
  const PlacementPlan plan = counting_plan(2);
  Servers servers(2, {.workers = kWorkers, .staleness = 0});
  auto chief = servers.chief(plan);
  std::vector<std::thread> threads;
  for (int number = 0; number < kWorkers; ++number) {
    threads.emplace_back([&, number] {
      auto own = number == 0 ? nullptr : servers.client(plan, number);
      PsClient& worker = own ? *own : *chief;
      worker.wait_until_ready();
      Values pulled(plan);
      std::vector<float> gradient(kCountingElements);
      for (std::uint64_t step = worker.first_step(); step < kSteps; ++step) {
        worker.pull_async(step, pulled.targets()).wait(20s);
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = addend(number, step, i);
        std::vector<Gradient> gradients;
        for (std::size_t i = 0; i < 4; ++i) gradients.push_back({.shard = i, .values = bytes_of(gradient)});
        // Not always in the order of their numbers.
        if ((step + static_cast<std::uint64_t>(number)) % 3 == 0) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(worker.push_async({.step = step}, gradients).wait(20s).status, Status::kApplied);
      }
      if (own) own->finish(10s);
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<float> expected(kCountingElements);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      float sum = addend(0, step, i);
      for (int worker = 1; worker < kWorkers; ++worker) sum = sum + addend(worker, step, i);
      expected[i] = expected[i] + sum;
    }
  }
  Values pulled(plan);
  chief->pull_async(kSteps, pulled.targets()).wait(5s);
  for (std::size_t shard = 0; shard < 4; ++shard) {
    EXPECT_EQ(std::memcmp(pulled.floats(shard), expected.data(), pulled.shards[shard].size()), 0) << shard;
  }
  EXPECT_EQ(chief->global_step(), kSteps);
}

TEST(PsService, TheFirstStepWaitsForAllWorkersToCome) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 2, .staleness = 0});
  auto chief = servers.chief(plan);
  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  // It gave the first values itself, and so need not pull before it pushes.
  auto early = chief->push_async({.step = 0}, std::span(&gradient, 1));
  EXPECT_THROW(early.wait(150ms), DeadlineExceeded);
  auto second = servers.client(plan, 1);
  second->wait_until_ready();
  EXPECT_EQ(second->first_step(), 0u);
  EXPECT_EQ(second->push_async({.step = 0}, std::span(&gradient, 1)).wait(5s).status, Status::kApplied);
  EXPECT_EQ(early.wait(5s).status, Status::kApplied);
  Values pulled(plan);
  second->pull_async(1, pulled.targets()).wait(5s);
  EXPECT_EQ(pulled.floats(0)[0], 2.0f);
  EXPECT_EQ(servers.stores[0]->updates(0), 1);
}

TEST(PsService, AWorkerThatLeavesHoldsUpNoStep) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 2, .staleness = 0, .worker_grace = 100ms});
  auto chief = servers.chief(plan);
  auto second = servers.client(plan, 1);
  second->wait_until_ready();
  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  auto alone = chief->push_async({.step = 0}, std::span(&gradient, 1));
  EXPECT_THROW(alone.wait(150ms), DeadlineExceeded);
  second.reset();
  EXPECT_EQ(alone.wait(5s).status, Status::kApplied);
  chief->push_async({.step = 1}, std::span(&gradient, 1)).wait(5s);
}

TEST(PsService, AWorkerWaitsForOneThatIsTooFarBehind) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 2, .staleness = 2});
  auto fast = servers.chief(plan);
  auto slow = servers.client(plan, 1);
  slow->wait_until_ready();
  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  Values pulled(plan);
  for (std::uint64_t step = 0; step < 3; ++step) {
    fast->pull_async(step, pulled.targets()).wait(5s);
    fast->push_async({.step = step}, std::span(&gradient, 1)).wait(5s);
  }
  // Three steps ahead of one that has finished none.
  auto waiting = fast->pull_async(3, pulled.targets());
  EXPECT_THROW(waiting.wait(100ms), DeadlineExceeded);
  slow->push_async({.step = 0}, std::span(&gradient, 1)).wait(5s);
  waiting.wait(5s);
  EXPECT_EQ(pulled.floats(0)[0], 4.0f);
}

TEST(PsService, ATrainingThatGoesOnBeginsWithItsStep) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 2, .staleness = 0});
  auto chief = servers.chief(plan, {.step = 100});
  auto second = servers.client(plan, 1, {.step = 100});
  second->wait_until_ready();
  EXPECT_EQ(second->first_step(), 100u);
  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  Values pulled(plan);
  chief->pull_async(100, pulled.targets()).wait(5s);
  auto first = chief->push_async({.step = 100}, std::span(&gradient, 1));
  EXPECT_EQ(second->push_async({.step = 100}, std::span(&gradient, 1)).wait(5s).status, Status::kApplied);
  EXPECT_EQ(first.wait(5s).status, Status::kApplied);
  chief->pull_async(101, pulled.targets()).wait(5s);
  EXPECT_EQ(pulled.floats(0)[0], 2.0f);
  EXPECT_EQ(servers.stores[0]->updates(0), 1);
}

TEST(PsService, GoesOnFromItsSnapshot) {
  const PlacementPlan plan = small_plan(1);
  const TempFolder folder;
  const std::vector<float> ones(12, 1.0f);
  const Gradient gradient{.shard = 1, .values = bytes_of(ones)};
  auto options = PsServiceOptions{
      .workers = 1, .snapshot_folder = folder.path(), .snapshot_every = 1h, .snapshot_updates = 1'000'000};
  auto servers = std::make_unique<Servers>(1, options);
  auto chief = servers->chief(plan);
  for (std::uint64_t step = 0; step < 3; ++step) {
    chief->push_async({.step = step}, std::span(&gradient, 1)).wait(5s);
  }
  options.port = servers->services[0]->port();
  servers.reset();  // saves
  servers = std::make_unique<Servers>(1, options);
  EXPECT_TRUE(servers->services[0]->counters().resumed);
  EXPECT_EQ(chief->push_async({.step = 3}, std::span(&gradient, 1)).wait(5s).global_step, 4u);
  EXPECT_EQ(chief->lost_updates(), 0u);
  EXPECT_EQ(servers->stores[0]->updates(1), 4);
  Values pulled(plan);
  chief->pull_async(4, pulled.targets()).wait(5s);
  EXPECT_EQ(pulled.floats(1)[0], 4.0f);
}

TEST(PsService, APsThatStaysAwayIsNamed) {
  const PlacementPlan plan = counting_plan(1);
  auto servers = std::make_unique<Servers>(1);
  auto chief = servers->chief(plan, {.ps_outage = 200ms});
  servers->services.clear();
  Values pulled(plan);
  auto handle = chief->pull_async(0, pulled.targets());
  const std::string message = message_of<Unavailable>([&] { handle.wait(10s); });
  EXPECT_TRUE(message.starts_with("ps 0 (127.0.0.1:")) << message;
  EXPECT_NE(message.find("has been gone for"), std::string::npos) << message;
  EXPECT_THROW(chief->pull_async(0, pulled.targets()).wait(1s), Unavailable);
}

TEST(PsService, ASlowReaderHoldsUpNobody) {
  const PlacementPlan plan({{"big", "F32", {1 << 20}}, {"small", "F32", {8}}}, {.num_ps = 1});
  Servers servers(1, {.workers = 2, .threads = 1});
  auto chief = servers.chief(plan);
  RawPeer slow(servers.addresses[0], 5);
  slow.send(encode(Hello{.worker = 5, .incarnation = kProcess, .plan_digest = plan.digest()}));
  slow.receive<HelloReply>();
  for (int i = 0; i < 20; ++i) {
    slow.send(encode(Pull{.worker = 5, .incarnation = kProcess, .entries = {{.shard = 0}}}));
  }
  Values pulled(plan);
  const std::vector<float> ones(1 << 20, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  for (std::uint64_t step = 0; step < 10; ++step) {
    chief->push_async({.step = step}, std::span(&gradient, 1)).wait(5s);
    chief->pull_async(step + 1, pulled.targets()).wait(5s);
  }
  EXPECT_EQ(pulled.floats(0)[99], 10.0f);
}

}  // namespace
}  // namespace tandem::internal::ps
