#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/file_descriptor.h"
#include "base/net.h"
#include "status/support.h"

namespace tandem {
namespace {

using internal::FileDescriptor;
using testing_support::has;
using testing_support::ProcessResult;
using testing_support::run_tandem;
using testing_support::Workers;

const std::vector<std::string> kLong = {"--steps", "100000", "--step_ms", "20"};

// Accepts connections (the kernel does) and never says a word.
FileDescriptor listen_at(int port, int backlog = 16) {
  const auto address = internal::resolve_host("127.0.0.1", port).front();
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(listener.get(), address.get(), address.length), 0);
  EXPECT_EQ(listen(listener.get(), backlog), 0);
  return listener;
}

struct Diagnosis {
  int exit_code = -1;
  nlohmann::json findings;
  std::chrono::duration<double> took{};

  // "ok", "warning" or "problem" and the text, of the first finding about this.
  std::string about(const std::string& what) const {
    for (const auto& finding : findings) {
      if (finding["about"] == what) {
        return finding["level"].get<std::string>() + ": " + finding["text"].get<std::string>();
      }
    }
    return "nothing about " + what;
  }
};

Diagnosis doctor(std::vector<std::string> arguments, const std::vector<std::string>& variables = {}) {
  arguments.insert(arguments.begin(), {"doctor", "--json"});
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult result = run_tandem(arguments, variables);
  const auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << result.out << result.err;
  return {result.exit_code, json.is_object() ? json["findings"] : nlohmann::json::array(),
          std::chrono::steady_clock::now() - start};
}

TEST(Doctor, FindsNothingWrongBeforeTheStart) {
  const Workers workers(2);
  const Diagnosis found = doctor({"--worker_hosts", workers.hosts(), "--task_index", "0"});
  EXPECT_EQ(found.exit_code, 0) << found.findings.dump(1);
  EXPECT_TRUE(has(found.about("cluster"), "ok: ")) << found.about("cluster");
  EXPECT_TRUE(has(found.about("cluster"), "from --worker_hosts; this is worker:0 (chief)"));
  EXPECT_TRUE(has(found.about("worker:0"), "ok: ")) << found.about("worker:0");
  EXPECT_TRUE(has(found.about("worker:0"), "the port is free"));
  EXPECT_TRUE(has(found.about("worker:1"), "warning: ")) << found.about("worker:1");
  EXPECT_TRUE(has(found.about("worker:1"), "refuses connections: the task is not started yet"));
  EXPECT_EQ(found.about("proxies"), "ok: none set");
  EXPECT_TRUE(has(found.about("cores"), "usable"));
  EXPECT_TRUE(has(found.about("open files"), "up to"));

  const ProcessResult text = run_tandem({"doctor", "--worker_hosts", workers.hosts(), "--task_index", "0"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.out.find("ok       cluster     "), 0u) << text.out;
  EXPECT_FALSE(has(text.out, "\x1b"));
}

TEST(Doctor, AsksTasksThatRunEvenWithADeadProxy) {
  Workers workers(2);
  // hello_cluster gets the proxies too: exported here for it and for doctor.
  const std::vector<const char*> names{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                                       "grpc_proxy"};
  for (const char* name : names) setenv(name, "http://127.0.0.1:9", 1);
  workers.start_all(kLong);
  workers.task(0).wait_for("started");
  workers.task(1).wait_for("started");
  const Diagnosis found = doctor({"--worker_hosts", workers.hosts(), "--task_index", "0"});
  const int status = run_tandem({"status", "--worker_hosts", workers.hosts()}).exit_code;
  for (const char* name : names) unsetenv(name);
  EXPECT_EQ(found.exit_code, 0) << found.findings.dump(1);
  for (const char* task : {"worker:0", "worker:1"}) {
    EXPECT_TRUE(has(found.about(task), "ok: ")) << found.about(task);
    EXPECT_TRUE(has(found.about(task), "answers: same cluster, same protocol; running, at step"))
        << found.about(task);
  }
  EXPECT_EQ(found.about("proxies"),
            "ok: http_proxy, https_proxy, HTTP_PROXY, HTTPS_PROXY, grpc_proxy are set, and ignored: tasks "
            "connect to "
            "each other directly");
  EXPECT_EQ(status, 0);
}

TEST(Doctor, KnowsAnotherCluster) {
  Workers workers(2);
  workers.start(1, kLong);
  workers.task(1).wait_for("listens at");
  const Workers other(1);
  const Diagnosis found =
      doctor({"--worker_hosts", fmt::format("{},127.0.0.1:{}", other.hosts(), workers.port(1))});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_TRUE(has(found.about("worker:1"), "problem: ")) << found.about("worker:1");
  EXPECT_TRUE(has(found.about("worker:1"), "refuses, saying: clusters differ: worker:0 is"))
      << found.about("worker:1");
}

TEST(Doctor, DoesNotWaitForAPeerThatSaysNothing) {
  const Workers workers(3);
  const FileDescriptor mute = listen_at(workers.port(1));
  const FileDescriptor also = listen_at(workers.port(2));
  const Diagnosis found = doctor({"--worker_hosts", workers.hosts(), "--task_index", "0"});
  EXPECT_EQ(found.exit_code, 1);
  for (const char* task : {"worker:1", "worker:2"}) {
    EXPECT_TRUE(has(found.about(task), "problem: ")) << found.about(task);
    EXPECT_TRUE(has(found.about(task), "takes connections, but is no task that answers"))
        << found.about(task);
  }
  EXPECT_LT(found.took.count(), 15);
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult status = run_tandem({"status", "--worker_hosts", workers.hosts()});
  EXPECT_EQ(status.exit_code, 75);
  EXPECT_TRUE(has(status.err, "worker:1")) << status.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// A listener whose queue is full drops what comes, as a firewall does.
TEST(Doctor, KnowsAFirewall) {
  const Workers workers(2);
  const FileDescriptor full = listen_at(workers.port(1), 0);
  const auto address = internal::resolve_host("127.0.0.1", workers.port(1)).front();
  std::vector<FileDescriptor> queue;
  for (int i = 0; i < 4; ++i) {
    queue.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    connect(queue.back().get(), address.get(), address.length);
  }
  ASSERT_EQ(internal::try_to_connect(address, std::chrono::milliseconds(300)), ETIMEDOUT);
  const Diagnosis found = doctor({"--worker_hosts", workers.hosts(), "--task_index", "0"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_TRUE(has(found.about("worker:1"), "problem: ")) << found.about("worker:1");
  EXPECT_TRUE(has(found.about("worker:1"), "is silent for 2000 ms: a firewall")) << found.about("worker:1");
  EXPECT_LT(found.took.count(), 15);
}

TEST(Doctor, KnowsWhoHasThePortOfThisTask) {
  const Workers workers(2);
  const FileDescriptor mute = listen_at(workers.port(0));
  const Diagnosis found = doctor({"--worker_hosts", workers.hosts(), "--task_index", "0"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_TRUE(has(found.about("worker:0"), "problem: worker:0 cannot listen at")) << found.about("worker:0");
  EXPECT_TRUE(has(found.about("worker:0"), "the port is in use; port")) << found.about("worker:0");
  EXPECT_TRUE(has(found.about("worker:0"), "another program has the port")) << found.about("worker:0");
}

TEST(Doctor, NamesAddressesThatCannotBe) {
  const Workers workers(1);
  // 192.0.2.0/24 belongs to no machine; .invalid is no domain.
  const Diagnosis found = doctor({"--worker_hosts", "192.0.2.1:2222,tandem.invalid:2222," + workers.hosts(),
                                  "--task_index", "0", "--insecure_network"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_TRUE(has(found.about("worker:0"), "that is no address of this machine")) << found.about("worker:0");
  EXPECT_TRUE(has(found.about("worker:1"), "\"tandem.invalid\" cannot be resolved"))
      << found.about("worker:1");
  EXPECT_TRUE(has(found.about("names"), "a loopback address is another machine")) << found.about("names");
}

TEST(Doctor, ReadsTheClusterStrictly) {
  const Diagnosis wrong = doctor({}, {R"(TF_CONFIG={"cluster": {"worker": ["me@10.0.0.1:2222"]}})"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_TRUE(has(wrong.about("cluster"), "problem: TF_CONFIG: ")) << wrong.about("cluster");
  EXPECT_TRUE(has(wrong.about("open files"), "up to"));  // the rest is still looked at
  const Diagnosis none = doctor({});
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(none.about("cluster"), "ok: none: a program started here trains alone");
}

TEST(Doctor, SaysWhatTheTaskWouldSayOfItsSecurity) {
  const Workers workers(1);
  const auto about = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--worker_hosts", workers.hosts(), "--task_index", "0"});
    return doctor(more).about("security");
  };
  EXPECT_TRUE(has(about({"--bind", "0.0.0.0"}), "warning: this task listens beyond loopback"));
  EXPECT_TRUE(has(about({"--bind", "0.0.0.0", "--insecure_network"}), "nothing about security"));
  EXPECT_TRUE(has(about({"--security", "token"}), "problem: security \"token\" needs a file"));
  EXPECT_TRUE(has(about({"--security", "magic"}), "problem: security \"magic\" is unknown"));
}

}  // namespace
}  // namespace tandem
