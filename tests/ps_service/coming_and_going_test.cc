// Parameter servers and workers that come late, go, come back elsewhere, or are done.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "base/log.h"
#include "ps_service/servers.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace tandem::internal::ps {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

// Says where a ps is, once the test has told it.
struct Directory {
  PsLocator locator() {
    return [this](int, std::string& why) -> std::optional<PsEndpoint> {
      const std::lock_guard lock(mutex);
      ++asked;
      if (!endpoint) why = "ps 0 has not joined the cluster";
      return endpoint;
    };
  }
  void set(std::optional<PsEndpoint> there) {
    const std::lock_guard lock(mutex);
    endpoint = std::move(there);
  }

  std::mutex mutex;
  std::optional<PsEndpoint> endpoint;
  int asked = 0;
};

TEST(PsClient, FindsAPsThatComesBackWithAnotherPortAndKey) {
  const PlacementPlan plan = counting_plan(1);
  const TempFolder folder;
  CountingStore store;
  PsServiceOptions options{.cluster_id = kClusterId, .key = kKey, .snapshot_folder = folder.path()};
  auto service = std::make_unique<PsService>(store, options);
  Directory directory;
  PsClient client(plan, {.locate = directory.locator(), .cluster_id = kClusterId, .connect_timeout = 10s});
  directory.set(PsEndpoint{fmt::format("127.0.0.1:{}", service->port()), kKey});
  client.initialise("count", Values(plan).spans());
  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  client.push_async({.step = 0}, std::span(&gradient, 1)).wait(5s);

  const int first_port = service->port();
  directory.set({});
  service.reset();
  options.key = std::string(32, 'n');
  service = std::make_unique<PsService>(store, options);
  ASSERT_NE(service->port(), first_port);
  auto second = client.push_async({.step = 1}, std::span(&gradient, 1));
  directory.set(PsEndpoint{fmt::format("127.0.0.1:{}", service->port()), options.key});
  EXPECT_EQ(second.wait(10s).global_step, 2u);
  EXPECT_EQ(client.lost_updates(), 0u);
}

TEST(PsClient, SaysWhatIsMissingToFindAPs) {
  const PlacementPlan plan = counting_plan(1);
  Directory directory;
  PsClient client(plan, {.locate = directory.locator(), .cluster_id = kClusterId, .connect_timeout = 150ms});
  const std::string message = message_of<Unavailable>([&] { client.wait_until_ready(); });
  EXPECT_TRUE(message.starts_with("ps 0 has not come for ")) << message;
  EXPECT_NE(message.find("(ps 0 has not joined the cluster)"), std::string::npos) << message;
  EXPECT_GT(directory.asked, 1);
}

TEST(PsClient, CountsALostUpdateOnceHoweverOftenThePsDies) {
  const PlacementPlan plan = counting_plan(1);
  const TempFolder folder;
  PsServiceOptions options{
      .snapshot_folder = folder.file("first"), .snapshot_every = 1h, .snapshot_updates = 1000};
  auto servers = std::make_unique<Servers>(1, options);
  auto chief = servers->chief(plan);
  // As the disk is after a sudden death: with the first snapshot alone.
  const auto kept = [&](const std::string& name) {
    std::filesystem::copy(folder.file("first"), folder.file(name), std::filesystem::copy_options::recursive);
    return folder.file(name);
  };
  const std::string second = kept("second");
  const std::string third = kept("third");
  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  const auto push = [&](std::uint64_t step) {
    chief->push_async({.step = step}, std::span(&gradient, 1)).wait(5s);
  };
  options.port = servers->services[0]->port();
  for (std::uint64_t step = 0; step < 3; ++step) push(step);
  for (const std::string& snapshot : {second, third}) {
    servers.reset();
    options.snapshot_folder = snapshot;
    servers = std::make_unique<Servers>(1, options);
    push(snapshot == second ? 3 : 4);
    EXPECT_EQ(chief->lost_updates(), snapshot == second ? 3u : 4u);
  }
  EXPECT_EQ(chief->lost_updates(0), 4u);
  EXPECT_EQ(servers->stores[0]->updates(0), 1);
}

TEST(PsClient, OfTheChiefFailsWhenAPsHasForgottenEverythingAndOthersWaitForTheNext) {
  const PlacementPlan plan = counting_plan(1);
  PsServiceOptions options;
  auto servers = std::make_unique<Servers>(1, options);
  auto chief = servers->chief(plan);
  const auto worker = servers->client(plan, 1);
  worker->wait_until_ready();
  options.port = servers->services[0]->port();
  servers.reset();
  servers = std::make_unique<Servers>(1, options);

  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  auto waits = worker->push_async({.step = 0}, std::span(&gradient, 1));
  const std::string message =
      message_of<Unavailable>([&] { chief->push_async({.step = 0}, std::span(&gradient, 1)).wait(10s); });
  EXPECT_NE(message.find("has come back without what it held"), std::string::npos) << message;
  EXPECT_TRUE(chief->is_lost());
  EXPECT_FALSE(waits.done());
  chief = servers->chief(plan);
  EXPECT_EQ(waits.wait(10s).global_step, 1u);
  EXPECT_FALSE(worker->is_lost());
  EXPECT_FALSE(chief->is_lost());
}

TEST(PsClient, DoesNotMindAPsThatIsGoneWhenItHasFinished) {
  const PlacementPlan plan = counting_plan(2);
  Servers servers(2);
  auto chief = servers.chief(plan);
  servers.services[1].reset();
  const auto begin = std::chrono::steady_clock::now();
  chief->finish(20s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
  EXPECT_TRUE(servers.services[0]->join(5s));
  Values pulled(plan);
  EXPECT_THROW(chief->pull_async(0, pulled.targets()).wait(1s), FailedPrecondition);
}

TEST(PsJoin, WaitsForSomebodyToCome) {
  Servers servers(1, {.worker_grace = 10ms, .absence = 10ms});
  EXPECT_FALSE(servers.services[0]->join(100ms));
}

TEST(PsJoin, EndsWithTheChiefOnceNobodyElseIsThere) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 3, .worker_grace = 50ms});
  auto chief = servers.chief(plan);
  auto dies = servers.client(plan, 1);
  auto finishes = servers.client(plan, 2);
  dies->wait_until_ready();
  finishes->wait_until_ready();
  chief->finish();
  EXPECT_FALSE(servers.services[0]->join(100ms));
  dies.reset();
  EXPECT_FALSE(servers.services[0]->join(100ms));
  finishes->finish();
  EXPECT_TRUE(servers.services[0]->join(5s));
}

TEST(PsJoin, DoesNotWaitForeverForOneThatForgotToFinish) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 2, .absence = 200ms});
  auto chief = servers.chief(plan);
  auto forgets = servers.client(plan, 1);
  forgets->wait_until_ready();
  chief->finish();
  EXPECT_TRUE(servers.services[0]->join(5s));
}

TEST(PsJoin, EndsWhenAllWhoCameAreGoneForGood) {
  const PlacementPlan plan = counting_plan(1);
  Servers servers(1, {.workers = 2, .worker_grace = 10ms, .absence = 300ms});
  auto chief = servers.chief(plan);
  auto worker = servers.client(plan, 1);
  worker->wait_until_ready();
  worker->finish();
  EXPECT_FALSE(servers.services[0]->join(0ms));
  chief.reset();
  EXPECT_FALSE(servers.services[0]->join(100ms)) << "it may come back";
  chief = servers.client(plan, 0);
  chief->wait_until_ready();
  EXPECT_FALSE(servers.services[0]->join(500ms)) << "it has come back";
  chief.reset();
  EXPECT_TRUE(servers.services[0]->join(5s));
}

TEST(PsJoin, AfterARestartWaitsForThoseWhoAreLeft) {
  const PlacementPlan plan = counting_plan(1);
  const TempFolder folder;
  PsServiceOptions options{.workers = 2, .snapshot_folder = folder.path()};
  auto servers = std::make_unique<Servers>(1, options);
  auto chief = servers->chief(plan);
  auto worker = servers->client(plan, 1);
  worker->wait_until_ready();
  chief->finish();
  options.port = servers->services[0]->port();
  servers.reset();
  servers = std::make_unique<Servers>(1, options);
  EXPECT_FALSE(servers->services[0]->join(0ms)) << "worker 1 has not finished";
  worker->finish();
  EXPECT_TRUE(servers->services[0]->join(5s));
}

}  // namespace
}  // namespace tandem::internal::ps
