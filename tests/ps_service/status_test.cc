// `tandem status` beside parameter servers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/ports.h"
#include "ps_service/servers.h"
#include "support/process.h"
#include "support/temp_folder.h"
#include "tandem/task_server.h"

namespace tandem::internal::ps {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

ProcessResult status(const std::string& cluster_file, std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), {TANDEM_BIN "/tandem", "status", "--cluster_file", cluster_file});
  return run_process(flags, 60);
}

TEST(PsStatus, SaysWhatEachPsHoldsAndHowBusyItIs) {
  const PlacementPlan plan = counting_plan(2);
  Servers servers(2, {.workers = 2});
  auto chief = servers.chief(plan);
  auto worker = servers.client(plan, 1);
  worker->wait_until_ready();
  const std::vector<float> ones(kCountingElements, 1.0f);
  const Gradient gradient{.shard = 0, .values = bytes_of(ones)};
  for (std::uint64_t step = 0; step < 3; ++step) {
    chief->push_async({.step = step}, std::span(&gradient, 1)).wait(5s);
    worker->push_async({.step = step}, std::span(&gradient, 1)).wait(5s);
  }

  const auto ports = ReservedPorts::choose("127.0.0.1", 4);
  const auto address = [&](std::size_t i) { return fmt::format("127.0.0.1:{}", ports.ports()[i]); };
  using Addresses = std::vector<std::string>;
  const ClusterSpec cluster(
      {{"worker", Addresses{address(0)}}, {"ps", Addresses{address(1), address(2), address(3)}}});
  const TempFolder folder;
  const std::string file = folder.file("cluster.json");
  std::ofstream(file) << fmt::format(R"({{"cluster": {}}})", cluster.to_json());
  TaskServer teller(cluster, "worker", 0);
  std::vector<TaskServer> tasks;
  for (int ps = 0; ps < 2; ++ps) {
    tasks.emplace_back(cluster, "ps", ps);
    tasks.back().set_details([&service = *servers.services[static_cast<std::size_t>(ps)]] {
      return details_of(service.counters());
    });
  }

  const ProcessResult text = status(file);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("\n\nPS    SHARDS"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("no answer: ps:2 (" + address(3) + "): Connection refused"), std::string::npos)
      << text.out;
  const ProcessResult json_text = status(file, {"--json"});
  const auto json = nlohmann::json::parse(json_text.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(json["ps"].size(), 3u) << json_text.out << json_text.err;
  const auto& first = json["ps"][0];
  EXPECT_EQ(first["task"], "ps:0");
  EXPECT_EQ(first["shards"], 2);
  EXPECT_EQ(first["bytes"], 2 * 4 * kCountingElements);
  EXPECT_EQ(first["workers"], 2);
  EXPECT_EQ(first["pushes"], 6);
  EXPECT_GT(first["pushes_per_second"], 0);
  EXPECT_EQ(first["global_step"], 6);
  int staleness = 0;
  for (const auto& bucket : first["staleness"]) staleness += bucket.get<int>();
  EXPECT_EQ(staleness, 6);
  EXPECT_EQ(json["ps"][1]["global_step"], nullptr);
  EXPECT_TRUE(json["ps"][2].contains("failure"));
  for (TaskServer& task : tasks) task.set_details({});
}

TEST(PsStatus, GoesWithoutDetailsThatAreTooLong) {
  const auto ports = ReservedPorts::choose("127.0.0.1", 1);
  const ClusterSpec cluster(
      {{"ps", std::vector<std::string>{fmt::format("127.0.0.1:{}", ports.ports()[0])}}});
  const TempFolder folder;
  const std::string file = folder.file("cluster.json");
  std::ofstream(file) << fmt::format(R"({{"cluster": {}}})", cluster.to_json());
  TaskServer server(cluster, "ps", 0);
  server.set_details([] { return std::map<std::string, std::string>{{"text", std::string(10'000, 'x')}}; });
  const ProcessResult text = status(file);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("it says nothing of itself"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace tandem::internal::ps
