#include "cli/cluster_layout.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;

std::vector<std::string> addresses(const std::vector<PlacedTask>& tasks) {
  std::vector<std::string> all;
  for (const auto& task : tasks) all.push_back(task.name() + "@" + task.address);
  return all;
}

TEST(ClusterLayout, PutsTheTasksOfAHostOnItsPorts) {
  const ClusterShape shape{.workers = 2, .ps = 1, .chief = true, .evaluator = true};
  EXPECT_EQ(shape.num_tasks(), 5);
  EXPECT_EQ(addresses(place_on_host(shape, "127.0.0.1", {1, 2, 3, 4, 5})),
            (std::vector<std::string>{"chief:0@127.0.0.1:1", "worker:0@127.0.0.1:2", "worker:1@127.0.0.1:3",
                                      "ps:0@127.0.0.1:4", "evaluator:0@127.0.0.1:5"}));
  EXPECT_EQ(place_on_host({.workers = 1}, "::1", {7})[0].address, "[::1]:7");
}

TEST(ClusterLayout, DealsTasksToHostsInTurn) {
  EXPECT_EQ(
      addresses(place_on_hosts({.workers = 3, .ps = 1}, {"h1", "h2:4000"}, 2222)),
      (std::vector<std::string>{"worker:0@h1:2222", "worker:1@h2:4000", "worker:2@h1:2223", "ps:0@h2:4001"}));
  EXPECT_EQ(addresses(place_on_hosts({.workers = 3}, {"h", "h", "h:2223"}, 2222)),
            (std::vector<std::string>{"worker:0@h:2222", "worker:1@h:2223", "worker:2@h:2224"}));
  EXPECT_EQ(addresses(place_on_hosts({.workers = 2}, {"::1", "[::2]:9"}, 2222)),
            (std::vector<std::string>{"worker:0@[::1]:2222", "worker:1@[::2]:9"}));
}

TEST(ClusterLayout, RefusesHostsThatCannotBeReached) {
  for (const std::string host : {"", "h:0", "h:port", "h:65536", "http://h"})
    EXPECT_NE(
        message_of<InvalidArgument>([&] { place_on_hosts({.workers = 1}, {host}, 2222); }).find("--hosts"),
        std::string::npos)
        << host;
  EXPECT_NE(
      message_of<InvalidArgument>([] { place_on_hosts({.workers = 2}, {"h:65535"}, 1); }).find("worker:1"),
      std::string::npos);
}

TEST(ClusterLayout, TellsEachTaskWhoItIs) {
  const auto tasks = place_on_host({.workers = 1, .ps = 1}, "h", {1, 2});
  EXPECT_EQ(nlohmann::json::parse(tf_config(tasks, tasks[1])),
            nlohmann::json::parse(R"({"cluster": {"worker": ["h:1"], "ps": ["h:2"]},
                                      "task": {"type": "ps", "index": 0}})"));
}

TEST(ShellQuoted, LeavesPlainWordsAlone) {
  EXPECT_EQ(shell_quoted("./a-b_c.d/e:1,2+3@4%"), "./a-b_c.d/e:1,2+3@4%");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted("~"), "'~'");
  EXPECT_EQ(shell_quoted("a=b"), "'a=b'");
}

}  // namespace
}  // namespace tandem::internal
