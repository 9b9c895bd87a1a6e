// The model as a whole: read with its optimizer's state, set anew, and begun where a training stopped.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "ps_service/raw_peer.h"
#include "ps_service/servers.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace tandem::internal::ps {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

std::vector<std::byte> count_bytes(std::int64_t number) {
  std::vector<std::byte> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

// All elements have this value, after so many updates.
ShardImage image_of(const PlacementPlan& plan, std::size_t shard, float value, std::int64_t updates) {
  const auto& variable = plan.variables()[static_cast<std::size_t>(plan.shards()[shard].variable)];
  ShardImage image{.values = std::vector<std::byte>(plan.shards()[shard].bytes),
                   .state = {{"updates", "I64", {1}, count_bytes(updates)}}};
  if (variable.dtype == "F32") {
    std::fill_n(reinterpret_cast<float*>(image.values.data()), image.values.size() / sizeof(float), value);
  } else {
    std::fill_n(reinterpret_cast<double*>(image.values.data()), image.values.size() / sizeof(double), value);
  }
  return image;
}

std::vector<ShardImage> images_of(const PlacementPlan& plan, float value, std::int64_t updates) {
  std::vector<ShardImage> images;
  for (std::size_t i = 0; i < plan.shards().size(); ++i) {
    images.push_back(image_of(plan, i, value, updates));
  }
  return images;
}

PsOutcome push_ones(PsClient& client, std::uint64_t step) {
  static const std::vector<float> ones(kCountingElements, 1.0f);
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < 4; ++i) gradients.push_back({.shard = i, .values = bytes_of(ones)});
  return client.push_async({.step = step}, gradients).wait(5s);
}

TEST(PsState, IsReadWithTheOptimizersState) {
  const PlacementPlan plan = counting_plan(2);
  Servers servers(2);
  auto chief = servers.chief(plan);
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 0, 0));
  for (std::uint64_t step = 0; step < 3; ++step) push_ones(*chief, step);
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 3, 3));
}

TEST(PsState, IsReadAtOneVersionWhileOthersPush) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 2});
  auto chief = servers.chief(plan);
  std::atomic<bool> stop{false};
  std::thread pusher([&] {
    auto worker = servers.client(plan, 1);
    worker->wait_until_ready();
    for (std::uint64_t step = 0; !stop; ++step) push_ones(*worker, step);
  });
  for (int i = 0; i < 100; ++i) {
    for (const ShardImage& image : chief->read_shards(5s)) {
      std::int64_t updates = 0;
      std::memcpy(&updates, image.state.at(0).bytes.data(), sizeof updates);
      const auto* values = reinterpret_cast<const float*>(image.values.data());
      for (std::size_t k = 0; k < kCountingElements; ++k) {
        ASSERT_EQ(values[k], static_cast<float>(updates));
      }
    }
  }
  stop = true;
  pusher.join();
}

TEST(PsState, IsSetAndNotServedFromOldCopies) {
  const PlacementPlan plan = counting_plan(2);
  Servers servers(2, {.workers = 2});
  auto chief = servers.chief(plan);
  auto worker = servers.client(plan, 1);
  worker->wait_until_ready();
  push_ones(*worker, 0);
  Values pulled(plan);
  worker->pull_async(1, pulled.targets()).wait(5s);

  const auto images = images_of(plan, 50, 20);
  chief->assign(images, 700, 5s);
  EXPECT_EQ(chief->global_step(), 700u);
  EXPECT_EQ(chief->read_shards(5s), images);
  worker->pull_async(1, pulled.targets()).wait(5s);
  EXPECT_EQ(pulled.floats(3)[kCountingElements - 1], 50.0f);
  // Pushes go on where they were, and count from there.
  EXPECT_EQ(push_ones(*worker, 1).global_step, 701u);
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 51, 21));

  // Without state: as before the first update. Without a step: it goes on.
  auto without_state = images_of(plan, 1, 0);
  for (ShardImage& image : without_state) image.state.clear();
  chief->assign(without_state, {}, 5s);
  EXPECT_EQ(push_ones(*worker, 2).global_step, 702u);
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 2, 1));
}

TEST(PsState, OfATrainingThatGoesOnIsWhereItBegins) {
  const PlacementPlan plan = small_plan(2);
  Servers servers(2, {.workers = 2});
  auto chief = servers.client(plan, 0);
  const auto images = images_of(plan, 4, 12);
  EXPECT_EQ(chief->initialise("count", images, 1200), 0);
  EXPECT_EQ(chief->global_step(), 1200u);
  EXPECT_EQ(chief->read_shards(5s), images);
  const std::vector<float> ones(12, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  EXPECT_EQ(chief->push_async({.step = 1200}, std::span(&gradient, 1)).wait(5s).global_step, 1201u);

  // Another chief is told that it came too late.
  auto second = servers.client(plan, 0);
  EXPECT_EQ(second->initialise("count", images_of(plan, 9, 9), 5), 2);
  EXPECT_EQ(second->global_step(), 1201u);
  EXPECT_EQ(second->read_shards(5s).at(1), images.at(1));
}

TEST(PsState, SurvivesThePsAsSoonAsItIsSet) {
  const PlacementPlan plan = counting_plan(1);
  const TempFolder folder;
  const PsServiceOptions options{
      .workers = 1, .snapshot_folder = folder.path(), .snapshot_every = 1h, .snapshot_updates = 1'000'000};
  auto servers = std::make_unique<Servers>(1, options);
  auto chief = servers->chief(plan);
  const std::uint64_t saved = servers->services[0]->counters().snapshots;
  chief->assign(images_of(plan, 5, 6), 80, 10s);
  EXPECT_GT(servers->services[0]->counters().snapshots, saved);

  // What is on the disk now, as after a sudden death.
  const TempFolder copy;
  std::filesystem::copy(folder.path(), copy.file("ps"), std::filesystem::copy_options::recursive);
  auto later = options;
  later.snapshot_folder = copy.file("ps");
  Servers again(1, later);
  auto second = again.client(plan, 0);
  EXPECT_EQ(second->initialise("count", Values(plan).spans()), 1);
  EXPECT_EQ(second->global_step(), 80u);
  EXPECT_EQ(second->read_shards(5s), images_of(plan, 5, 6));
}

TEST(PsState, ThatIsWrongIsRefusedBeforeItIsSent) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1);
  auto chief = servers.chief(plan);
  auto images = images_of(plan, 1, 1);
  images[1].values.pop_back();
  EXPECT_EQ(message_of<InvalidArgument>([&] { chief->assign(images, {}, 5s); }),
            "a value of b has 19999 bytes: expected 20000");
  images = images_of(plan, 1, 1);
  images[2].state[0].shape = {3};
  EXPECT_EQ(message_of<InvalidArgument>([&] { chief->assign(images, {}, 5s); }),
            "state \"updates\" of c has 8 bytes: not those of I64 [3]");
  images = images_of(plan, 1, 1);
  images[0].state.push_back(images[0].state[0]);
  EXPECT_EQ(message_of<InvalidArgument>([&] { chief->assign(images, {}, 5s); }),
            "state \"updates\" of a comes twice");
  images.pop_back();
  EXPECT_EQ(message_of<InvalidArgument>([&] { chief->assign(images, {}, 5s); }),
            "values of 3 shards: the plan has 4");
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 0, 0));
}

TEST(PsState, ThatTheStoreDoesNotKnowChangesNothing) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1);
  auto chief = servers.chief(plan);
  auto images = images_of(plan, 1, 1);
  images[0].state[0].name = "momentum";
  const std::string message = message_of<InvalidArgument>([&] { chief->assign(images, {}, 5s); });
  EXPECT_NE(message.find(": a: no count of updates"), std::string::npos) << message;
  auto other = servers.client(plan, 1);
  other->wait_until_ready();
  EXPECT_EQ(other->read_shards(5s), images_of(plan, 0, 0));
}

// Shard 0: "w"; 1 and 2: a table, on both servers.
PlacementPlan plan_with_table() {
  return {{{"w", "F32", {1, 3}},
           {.name = "t", .dtype = "F32", .shape = {8, 3}, .first_values = NormalValues{.stddev = 1}}},
          {.num_ps = 2, .partitioner = FixedShardsPartitioner(2)}};
}

TEST(PsState, OfATableIsNeverSentAsAWhole) {
  const PlacementPlan plan = plan_with_table();
  Servers servers(2);
  auto chief = servers.client(plan, 0);
  const std::vector<ShardImage> images{image_of(plan, 0, 2, 1), {}, {}};
  EXPECT_EQ(chief->initialise("count", images, 40), 0);
  EXPECT_EQ(chief->read_shards(5s), images);

  // Rows are pushed and pulled.
  const std::vector<std::int64_t> rows{1, 3};
  const std::vector<float> ones(6, 1.0f);
  const Gradient gradient{.shard = 2, .values = bytes_of(ones), .row_ids = rows};
  EXPECT_EQ(chief->push_async({.step = 40}, std::span(&gradient, 1)).wait(5s).global_step, 41u);
  std::vector<float> pulled(6);
  const PullTarget target{.shard = 2, .values = std::as_writable_bytes(std::span(pulled)), .row_ids = rows};
  chief->pull_async(0, std::span(&target, 1)).wait(5s);
  EXPECT_EQ(pulled, ones);  // the store of this test begins with zeros

  // Other values for the rest leave it as it is.
  chief->assign(images, 70, 5s);
  EXPECT_EQ(chief->global_step(), 70u);
  chief->pull_async(0, std::span(&target, 1)).wait(5s);
  EXPECT_EQ(pulled, ones);
  auto wrong = images;
  wrong[2] = image_of(plan, 2, 1, 1);
  EXPECT_EQ(message_of<InvalidArgument>([&] { chief->assign(wrong, {}, 5s); }),
            "values of t/part_1: a table is filled by its ps, and pushed and pulled by row");
}

class PsStateByHand : public testing::Test {
 protected:
  RawPeer admitted() {
    RawPeer peer(servers.addresses[0], 5);
    peer.send(encode(Hello{.worker = 5, .incarnation = kProcess, .plan_digest = plan.digest()}));
    EXPECT_EQ(peer.receive<HelloReply>().status, Status::kApplied);
    return peer;
  }
  // The values of all shards, each of this length.
  Answer assign(RawPeer& peer, std::int64_t length, bool damaged = false) {
    Assign assign{.worker = 5, .incarnation = kProcess};
    const std::vector<float> values(static_cast<std::size_t>(4 * length), 1.0f);
    const auto bytes = bytes_of(values);
    for (std::uint32_t i = 0; i < 4; ++i) {
      assign.entries.push_back({.shard = i, .dtype = "F32", .shape = {length}});
      const auto of_shard = bytes.subspan(i * bytes.size() / 4, bytes.size() / 4);
      assign.entries.back().crc = payload_crc({.values = of_shard}) + (damaged ? 1 : 0);
    }
    peer.send(encode(assign), bytes);
    return peer.receive<Answer>();
  }

  const Incarnation kProcess{1, 2};
  const PlacementPlan plan = counting_plan(1);
  Servers servers{1};
  std::unique_ptr<PsClient> chief = servers.chief(plan);
};

TEST_F(PsStateByHand, OfAWrongLength) {
  RawPeer peer = admitted();
  const Answer answer = assign(peer, 4999);
  EXPECT_EQ(answer.status, Status::kMalformed);
  EXPECT_EQ(answer.message, "a is F32 [5000]: values of F32 [4999] were sent");
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 0, 0));
}

TEST_F(PsStateByHand, DamagedOnTheWay) {
  RawPeer peer = admitted();
  EXPECT_EQ(assign(peer, 5000, true).status, Status::kDamaged);
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 0, 0));
  // The connection is still good.
  EXPECT_EQ(assign(peer, 5000).status, Status::kApplied);
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 1, 0));
}

TEST_F(PsStateByHand, WithoutHello) {
  RawPeer peer(servers.addresses[0], 5);
  EXPECT_EQ(assign(peer, 5000).status, Status::kNotAdmitted);
  peer.send(encode(Read{.worker = 5, .incarnation = kProcess, .shard = 0}));
  EXPECT_EQ(peer.receive<ReadReply>().status, Status::kNotAdmitted);
  EXPECT_EQ(chief->read_shards(5s), images_of(plan, 0, 0));
}

TEST_F(PsStateByHand, OfAShardThatIsNotThere) {
  RawPeer peer = admitted();
  peer.send(encode(Read{.worker = 5, .incarnation = kProcess, .shard = 4}));
  const auto reply = peer.receive<ReadReply>();
  EXPECT_EQ(reply.status, Status::kUnknownShard);
  EXPECT_EQ(reply.message, "ps 0: shard 4 is not here");
}

TEST_F(PsStateByHand, MoreThanAnyOptimizerKeeps) {
  RawPeer peer = admitted();
  Assign assign{.worker = 5, .incarnation = kProcess};
  for (std::uint32_t i = 0; i < 4; ++i) {
    assign.entries.push_back({.shard = i, .dtype = "F32", .shape = {5000}});
  }
  assign.entries.push_back({.shard = 3, .name = "history", .dtype = "F32", .shape = {1'000'000}});
  peer.send(encode(assign), std::vector<std::byte>(4 * 20'000 + 4'000'000));
  const auto answer = peer.receive<Answer>();
  EXPECT_EQ(answer.status, Status::kMalformed);
  EXPECT_TRUE(answer.message.starts_with("d comes with 4000000 bytes of state")) << answer.message;
}

}  // namespace
}  // namespace tandem::internal::ps
