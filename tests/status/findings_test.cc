#include <gtest/gtest.h>

#include "cli/machine_checks.h"
#include "cli/network_checks.h"
#include "cluster/support.h"

namespace tandem::internal {
namespace {

using testing_support::contains;
using testing_support::variables;
using Level = Finding::Level;

TaskHost host(int index, const std::string& name, const std::string& address) {
  return {.task = {"worker", index},
          .address = name + ":2222",
          .host = name,
          .port = 2222,
          .resolved = resolve_host(address, 2222)};
}

TEST(CheckNames, WarnsOfLoopbackBesideOthers) {
  const std::vector<TaskHost> mixed{host(0, "localhost", "127.0.0.1"), host(1, "b", "192.0.2.7")};
  const Findings findings = check_names(mixed, std::nullopt, "machine");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kWarning);
  EXPECT_TRUE(contains(findings[0].text,
                       "worker:0 is at localhost:2222 (127.0.0.1) and worker:1 at b:2222 (192.0.2.7)"));
  const std::vector<TaskHost> one_machine{host(0, "localhost", "127.0.0.1"), host(1, "::1", "::1")};
  EXPECT_TRUE(check_names(one_machine, TaskId{"worker", 0}, "machine").empty());
}

TEST(CheckNames, WarnsOfAMachineThatCallsItselfLoopback) {
  const std::vector<TaskHost> hosts{host(0, "node1", "127.0.1.1"), host(1, "node2", "127.0.1.2")};
  const Findings findings = check_names(hosts, TaskId{"worker", 0}, "node1");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_TRUE(contains(findings[0].text, "this machine's own name, node1, stands for 127.0.1.1"));
  EXPECT_TRUE(check_names(hosts, TaskId{"worker", 1}, "node1").empty());
  EXPECT_TRUE(check_names(hosts, std::nullopt, "node1").empty());
}

TEST(CheckClock, WarnsAboveTwoSeconds) {
  using std::chrono::milliseconds;
  EXPECT_FALSE(check_clock({"worker", 1}, milliseconds(-2000)));
  const auto ahead = check_clock({"worker", 1}, milliseconds(2400));
  ASSERT_TRUE(ahead);
  EXPECT_EQ(ahead->level, Level::kWarning);
  EXPECT_TRUE(contains(ahead->text, "2.4 s ahead of this machine's: only the times in logs"));
  EXPECT_TRUE(contains(check_clock({"worker", 1}, milliseconds(-90'000))->text, "90.0 s behind this"));
}

TEST(CheckProxies, NamesVariablesButNotTheirValues) {
  EXPECT_EQ(check_proxies(variables({})).text, "none set");
  const Finding set = check_proxies(
      variables({{"http_proxy", "http://user:secret@proxy:3128"}, {"HTTPS_PROXY", "x"}, {"no_proxy", "y"}}));
  EXPECT_EQ(set.level, Level::kOk);
  EXPECT_EQ(set.text, "http_proxy, HTTPS_PROXY are set, and ignored: tasks connect to each other directly");
}

TEST(CheckMachine, KnowsWhatIsTooLittle) {
  EXPECT_EQ(check_cores(8, 0).text, "8 usable");
  EXPECT_TRUE(
      contains(check_cores(8, 3).text, "8 usable, 3 tasks on this machine: 2 for the replicas of each"));
  EXPECT_EQ(check_cores(2, 3).level, Level::kWarning);
  EXPECT_EQ(check_open_files(1024, 2).level, Level::kOk);
  EXPECT_EQ(check_open_files(256, 2).level, Level::kWarning);
  EXPECT_TRUE(contains(check_open_files(1024, 1000).text, "ulimit -n 8256"));
}

}  // namespace
}  // namespace tandem::internal
