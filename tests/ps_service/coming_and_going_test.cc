// Parameter servers and workers that come late, go, come back elsewhere, or are done.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tandem::internal::ps
