#include "tandem/cluster_spec.h"

#include <gtest/gtest.h>

#include <sstream>

#include "support/errors.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using testing_support::message_of;

std::string print(const ClusterSpec& cluster) {
  std::ostringstream out;
  out << cluster;
  return out.str();
}

ClusterSpec ps_and_workers() {
  return ClusterSpec({{"worker", {"w0:2222", "w1:2222"}}, {"ps", {"ps0:2222"}}});
}

ClusterSpec sparse() {
  return ClusterSpec({{"worker", std::map<int, std::string>{{1, "w1:2222"}, {3, "w3:2222"}}}});
}

// The line that check() refuses it with.
std::string refusal(const ClusterSpec& cluster) {
  const std::string line = message_of<InvalidArgument>([&] { cluster.check(); });
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  return line;
}

TEST(ClusterSpec, TakesListsOfOneTwoAndThreeAddresses) {
  // {"a", "b"} must not become one string between two pointers.
  const ClusterSpec cluster({{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}, {"ps", {"d:1", "e:1", "f:1"}}});
  EXPECT_EQ(cluster.to_json(), R"({"chief":["a:1"],"worker":["b:1","c:1"],"ps":["d:1","e:1","f:1"]})");
  const ClusterSpec two({{"worker", {"b:1", "c:1"}}});
  EXPECT_EQ(two.to_json(), R"({"worker":["b:1","c:1"]})");
  const std::vector<std::string> hosts = {"x:1", "y:1"};
  EXPECT_EQ(ClusterSpec({{"worker", hosts}}).to_json(), R"({"worker":["x:1","y:1"]})");
  const ClusterSpec copy(cluster);
  EXPECT_EQ(copy, cluster);
}

TEST(ClusterSpec, IsEmptyWithoutJobs) {
  EXPECT_TRUE(ClusterSpec().empty());
  EXPECT_EQ(ClusterSpec().to_json(), "{}");
  EXPECT_EQ(print(ClusterSpec()), "ClusterSpec({})");
  EXPECT_TRUE(ClusterSpec().tasks().empty());
  EXPECT_FALSE(ps_and_workers().empty());
  ClusterSpec().check();
}

TEST(ClusterSpec, PrintsItsJobsByName) {
  EXPECT_EQ(print(ps_and_workers()), "ClusterSpec({'ps': ['ps0:2222'], 'worker': ['w0:2222', 'w1:2222']})");
  EXPECT_EQ(print(sparse()), "ClusterSpec({'worker': {1: 'w1:2222', 3: 'w3:2222'}})");
}

TEST(ClusterSpec, IsEqualWhateverTheOrderOfItsJobs) {
  const ClusterSpec other({{"ps", {"ps0:2222"}}, {"worker", {"w0:2222", "w1:2222"}}});
  EXPECT_EQ(ps_and_workers(), other);
  EXPECT_EQ(ps_and_workers().id(), other.id());
  EXPECT_NE(ps_and_workers().jobs(), other.jobs());
  const ClusterSpec swapped({{"ps", {"ps0:2222"}}, {"worker", {"w1:2222", "w0:2222"}}});
  EXPECT_FALSE(swapped == other);
  EXPECT_NE(swapped.id(), other.id());
}

TEST(ClusterSpec, HasAnIdThatTellsClustersApart) {
  EXPECT_EQ(ps_and_workers().id().size(), 32u);
  EXPECT_EQ(ps_and_workers().id().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(sparse().id(), ClusterSpec({{"worker", {"w1:2222", "w3:2222"}}}).id());
  EXPECT_NE(ClusterSpec({{"a", {"b"}}}).id(), ClusterSpec({{"ab", {""}}}).id());
}

TEST(ClusterSpec, ListsTasksInTheOrderAllAgreeOn) {
  const ClusterSpec cluster({{"zeta", {"z:1"}},
                             {"alpha", {"a:1"}},
                             {"evaluator", {"e:1"}},
                             {"ps", {"p:1"}},
                             {"worker", {"w:1", "w:2"}},
                             {"chief", {"c:1"}}});
  std::vector<std::string> names;
  for (const auto& task : cluster.tasks()) names.push_back(task.name());
  EXPECT_EQ(names, (std::vector<std::string>{"chief:0", "worker:0", "worker:1", "ps:0", "evaluator:0",
                                             "alpha:0", "zeta:0"}));
}

TEST(ClusterSpec, NamesTheJobOrTaskItDoesNotHave) {
  const auto cluster = ps_and_workers();
  EXPECT_EQ(message_of<InvalidArgument>([&] { cluster.num_tasks("workers"); }),
            R"(the cluster has no job "workers" (did you mean "worker"?); its jobs: "worker", "ps")");
  EXPECT_EQ(message_of<InvalidArgument>([&] { cluster.task_indices("chief"); }),
            R"(the cluster has no job "chief"; its jobs: "worker", "ps")");
  EXPECT_EQ(message_of<InvalidArgument>([&] { cluster.task_address("worker", 2); }),
            R"(job "worker" has no task 2: it has 2 (0 to 1))");
  EXPECT_EQ(message_of<InvalidArgument>([&] { sparse().task_address("worker", 0); }),
            R"(job "worker" has no task 0: its tasks are 1, 3)");
  EXPECT_EQ(message_of<InvalidArgument>([&] { ClusterSpec().job_tasks("ps"); }),
            R"(the cluster has no job "ps"; its jobs: none)");
}

TEST(ClusterSpec, RefusesAJobTwiceAndNegativeIndices) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              ClusterSpec({{"ps", {"a:1"}}, {"worker", {"b:1"}}, {"ps", {"c:1"}}});
            }),
            "the cluster names job \"ps\" twice");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              ClusterSpec({{"ps", std::map<int, std::string>{{-1, "a:1"}}}});
            }),
            "cluster.ps has the task index -1: indices begin at 0");
}

TEST(ClusterSpecCheck, AcceptsWhatTrainingKnows) {
  ps_and_workers().check();
  sparse().check();
  ClusterSpec({{"chief", {"[::1]:2222"}}, {"worker", {"[::1]:2223"}}, {"evaluator", {"münchen:2222"}}})
      .check();
  ClusterSpec({{"master", {"a:1"}}, {"ps", {"a:65535"}}}).check();
}

TEST(ClusterSpecCheck, RefusesJobsThatTrainingDoesNotKnow) {
  EXPECT_EQ(
      refusal(ClusterSpec({{"wroker", {"a:1"}}})),
      "cluster has the job \"wroker\" (did you mean \"worker\"?): expected chief, worker, ps, evaluator, "
      "master, as in {\"worker\": [\"10.0.0.1:2222\"]}");
  EXPECT_NE(refusal(ClusterSpec({{"trainer", {"a:1"}}})).find("\"trainer\": expected chief"),
            std::string::npos);
  EXPECT_NE(refusal(ClusterSpec({{"a\nb", {"a:1"}}})).find("\"a\\x0ab\""), std::string::npos);
}

TEST(ClusterSpecCheck, RefusesEmptyJobsAndSeconds) {
  EXPECT_NE(
      refusal(ClusterSpec({{"worker", std::vector<std::string>{}}})).find("cluster.worker has no tasks"),
      std::string::npos);
  EXPECT_NE(refusal(ClusterSpec({{"chief", {"a:1", "b:1"}}})).find("cluster.chief has 2 tasks: expected one"),
            std::string::npos);
  EXPECT_NE(refusal(ClusterSpec({{"evaluator", {"a:1", "b:1"}}})).find("cluster.evaluator has 2 tasks"),
            std::string::npos);
  EXPECT_NE(
      refusal(ClusterSpec({{"chief", {"a:1"}}, {"master", {"b:1"}}})).find("both \"chief\" and \"master\""),
      std::string::npos);
}

TEST(ClusterSpecCheck, NamesBothTasksThatShareAnAddress) {
  EXPECT_EQ(
      refusal(ClusterSpec({{"ps", {"a:2222"}}, {"worker", {"b:2222", "a:2222"}}})),
      "cluster.worker[1] is \"a:2222\", which ps:0 has too: every task needs an address of its own, such as "
      "\"a:2223\"");
  EXPECT_NE(refusal(ClusterSpec({{"worker", {"Host:65535", "hOST:65535"}}})).find("\"hOST:65534\""),
            std::string::npos);
  EXPECT_NE(refusal(ClusterSpec({{"worker", {"[::1]:1", "[0:0::1]:1"}}})).find("which worker:0 has too"),
            std::string::npos);
  EXPECT_NE(refusal(ClusterSpec({{"worker", {"a:1", "a:01"}}})).find("which worker:0 has too"),
            std::string::npos);
}

TEST(ClusterSpecCheck, RefusesAnIndexThatCanOnlyBeAnError) {
  EXPECT_NE(refusal(ClusterSpec({{"ps", std::map<int, std::string>{{2147483647, "a:1"}}}}))
                .find("cluster.ps has the task index 2147483647: expected 0 to 999999"),
            std::string::npos);
}

TEST(ParseAddress, TakesHostAndPortApart) {
  const auto expect = [](const std::string& address, const std::string& host, int port) {
    const HostPort parsed = parse_address(address, "x");
    EXPECT_EQ(parsed.host, host);
    EXPECT_EQ(parsed.port, port);
  };
  expect("localhost:1", "localhost", 1);
  expect("10.0.0.1:65535", "10.0.0.1", 65535);
  expect("[::1]:2222", "::1", 2222);
  expect("[fe80::1%eth0]:2222", "fe80::1%eth0", 2222);
  expect("a_b-c.example.com:80", "a_b-c.example.com", 80);
  expect("训练-1.例子:2222", "训练-1.例子", 2222);
  EXPECT_EQ(parse_address("a:0", "x", true).port, 0);
}

TEST(ParseAddress, SaysWhatIsWrongAndHowToWriteIt) {
  const auto refusal = [](const std::string& address) {
    const auto line = message_of<InvalidArgument>([&] { parse_address(address, "cluster.worker[1]"); });
    EXPECT_EQ(line.find('\n'), std::string::npos);
    return line;
  };
  EXPECT_EQ(refusal("me@host:22"), R"(cluster.worker[1] is "me@host:22": drop "me@": write "host:22")");
  EXPECT_EQ(refusal("grpc://host:22"),
            R"(cluster.worker[1] is "grpc://host:22": drop the scheme: write "host:22")");
  EXPECT_EQ(refusal("host"), R"(cluster.worker[1] is "host": the port is missing; write "host:2222")");
  EXPECT_EQ(refusal("[::1]"), R"(cluster.worker[1] is "[::1]": the port is missing; write "[::1]:2222")");
  EXPECT_EQ(refusal("host:0"),
            "cluster.worker[1] is \"host:0\": the port is \"0\": expected a number from 1 to "
            "65535, such as \"host:2222\"");
  for (const char* port :
       {"host:", "host:65536", "host:-1", "host:+1", "host:0x10", "host:99999999999", "host:1a"}) {
    EXPECT_NE(refusal(port).find("expected a number from 1 to 65535"), std::string::npos) << port;
  }
  EXPECT_NE(refusal(":2222").find("the host is missing"), std::string::npos);
  EXPECT_NE(refusal("").find("expected \"host:port\""), std::string::npos);
  EXPECT_NE(refusal("::1").find("goes in brackets"), std::string::npos);
  EXPECT_NE(refusal("::1:2222").find("goes in brackets"), std::string::npos);
  EXPECT_NE(refusal("[::1:2222").find("not closed"), std::string::npos);
  EXPECT_NE(refusal("[host]:2222").find("not an IPv6 address"), std::string::npos);
  EXPECT_NE(refusal("[::1]x:2222").find("not an IPv6 address"), std::string::npos);
  EXPECT_NE(refusal("a,b:2222").find("no host has such a name"), std::string::npos);
  EXPECT_NE(refusal("a/b:2222").find("no host has such a name"), std::string::npos);
  EXPECT_NE(refusal("ho st:2222").find("cannot be seen"), std::string::npos);
  EXPECT_NE(refusal("host:2222\n").find("cannot be seen"), std::string::npos);
  EXPECT_NE(refusal(std::string("ho\0st:1", 7)).find("\"ho\\x00st:1\""), std::string::npos);
  EXPECT_NE(refusal("ho\u200bst:1").find("\"ho\\xe2\\x80\\x8bst:1\""), std::string::npos);
  EXPECT_NE(refusal("ho\xffst:1").find("\"ho\\xffst:1\""), std::string::npos);
  EXPECT_NE(refusal(std::string(254, 'a') + ":1").find("names end at 253"), std::string::npos);
  EXPECT_LT(refusal(std::string(100000, 'a')).size(), 400u);
}

}  // namespace
}  // namespace tandem
