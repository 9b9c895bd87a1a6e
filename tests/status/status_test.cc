#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file_descriptor.h"
#include "status/support.h"

namespace tandem {
namespace {

using testing_support::eventually;
using testing_support::has;
using testing_support::ProcessResult;
using testing_support::run_process;
using testing_support::run_tandem;
using testing_support::RunningProgram;
using testing_support::TempFolder;
using testing_support::Workers;

const std::vector<std::string> kLong = {"--steps", "100000", "--step_ms", "20"};

nlohmann::json told(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"status", "--json"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const ProcessResult result = run_tandem(command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

TEST(Status, ShowsTheTasksOfARun) {
  Workers workers(2);
  workers.start_all(kLong);
  workers.task(0).wait_for("started");
  workers.task(1).wait_for("started");
  nlohmann::json table;
  ASSERT_TRUE(eventually([&] {
    table = told({"--worker_hosts", workers.hosts()});
    return table["tasks"][0]["step"] > 0 && table["tasks"][1]["step"] > 0;
  })) << table.dump();
  EXPECT_EQ(table["teller"], "worker:0");
  EXPECT_GT(table["wall_clock_ms"], 0);
  const auto& other = table["tasks"][1];
  EXPECT_EQ(other["task"], "worker:1");
  EXPECT_EQ(other["chief"], false);
  EXPECT_EQ(other["state"], "running");
  EXPECT_EQ(other["generation"], 1);
  EXPECT_EQ(other["examples_per_second"], 50.0);
  EXPECT_LT(other["silence_ms"], 5000);
  EXPECT_EQ(told({"--worker_hosts", workers.hosts(), "--task", "worker:1"})["teller"], "worker:1");

  const ProcessResult text = run_tandem({"status", "--worker_hosts", workers.hosts()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out.find("TASK "), 0u) << text.out;
  EXPECT_TRUE(has(text.out, "worker:0 (chief)  127.0.0.1:")) << text.out;
  EXPECT_TRUE(has(text.out, "tells this\n")) << text.out;
  EXPECT_EQ(std::ranges::count(text.out, '\n'), 3) << text.out;
}

TEST(Status, TakesAClusterWithoutATask) {
  Workers workers(2);
  workers.start(0, kLong);
  workers.task(0).wait_for("listens at");
  const std::string cluster = fmt::format(R"({{"cluster": {{"worker": ["127.0.0.1:{}", "127.0.0.1:{}"]}}}})",
                                          workers.port(0), workers.port(1));
  const ProcessResult variable = run_tandem({"status"}, {"TF_CONFIG=" + cluster});
  EXPECT_EQ(variable.exit_code, 0) << variable.err;
  EXPECT_TRUE(has(variable.out, "joining")) << variable.out;
  EXPECT_TRUE(has(variable.out, "never: Connection refused")) << variable.out;
  const TempFolder folder;
  std::ofstream(folder.file("cluster.json")) << cluster;
  EXPECT_EQ(run_tandem({"status", "--cluster_file", folder.file("cluster.json")}).exit_code, 0);
}

TEST(Status, AsksAnotherWhenOneDoesNotAnswer) {
  Workers workers(3);
  workers.start(2, kLong);
  workers.task(2).wait_for("listens at");
  EXPECT_EQ(told({"--worker_hosts", workers.hosts()})["teller"], "worker:2");
  EXPECT_EQ(told({"--worker_hosts", workers.hosts(), "--task", "worker:1"})["teller"], "worker:2");
}

TEST(Status, NamesEveryTaskWhenNoneAnswers) {
  const Workers workers(2);
  const ProcessResult result = run_tandem({"status", "--worker_hosts", workers.hosts()});
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, fmt::format("tandem: no task answers: worker:0 (127.0.0.1:{}): Connection refused; "
                                    "worker:1 (127.0.0.1:{}): Connection refused\n",
                                    workers.port(0), workers.port(1)));
}

TEST(Status, SaysWhyItIsRefused) {
  Workers workers(2);
  workers.start(0, kLong);
  workers.task(0).wait_for("listens at");
  const Workers other(1);
  const ProcessResult wrong = run_tandem(
      {"status", "--worker_hosts", fmt::format("127.0.0.1:{},{}", workers.port(0), other.hosts())});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(has(wrong.err, "refused by worker:0")) << wrong.err;
  EXPECT_TRUE(has(wrong.err, "clusters differ: worker:1 is")) << wrong.err;
  EXPECT_EQ(std::ranges::count(wrong.err, '\n'), 1) << wrong.err;

  const TempFolder folder;
  std::ofstream(folder.file("token")) << std::string(64, 'a') << "\n";
  std::filesystem::permissions(folder.file("token"), std::filesystem::perms::owner_read);
  const ProcessResult token = run_tandem({"status", "--worker_hosts", workers.hosts(), "--security", "token",
                                          "--token_file", folder.file("token")});
  EXPECT_EQ(token.exit_code, 2);
  EXPECT_TRUE(has(token.err, "does not know this task's token")) << token.err;
}

TEST(Status, NamesAWrongFlag) {
  EXPECT_EQ(run_tandem({"status"}).exit_code, 2);
  EXPECT_TRUE(has(run_tandem({"status"}).err, "no cluster: give --worker_hosts"));
  const auto task = [](const char* name) {
    return run_tandem({"status", "--worker_hosts", "127.0.0.1:1", "--task", name});
  };
  EXPECT_TRUE(has(task("worker").err, "such as worker:1"));
  EXPECT_EQ(task("ps:0").exit_code, 2);
  EXPECT_TRUE(has(task("ps:0").err, "--task is ps:0")) << task("ps:0").err;
}

TEST(StatusWatch, SaysThatTheRunHasEnded) {
  Workers workers(2);
  workers.start_all({"--steps", "30", "--step_ms", "50"});
  workers.task(0).wait_for("listens at");
  const ProcessResult result = run_tandem({"status", "--watch", "--worker_hosts", workers.hosts()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(has(result.out, "running")) << result.out;
  EXPECT_TRUE(has(result.out, "\nthe run has ended: ")) << result.out;
  EXPECT_TRUE(has(result.out, "done")) << result.out;
  EXPECT_FALSE(has(result.out, "\x1b")) << result.out;
  EXPECT_EQ(workers.task(0).wait(), 0);
  EXPECT_EQ(workers.task(1).wait(), 0);
}

TEST(StatusWatch, PrintsJsonByTheLine) {
  Workers workers(1);
  workers.start_all({"--steps", "30", "--step_ms", "50"});
  workers.task(0).wait_for("listens at");
  const ProcessResult result = run_tandem({"status", "--watch", "--json", "--worker_hosts", workers.hosts()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    EXPECT_TRUE(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false).is_object()) << line;
  }
  EXPECT_GT(count, 1);
  EXPECT_TRUE(has(result.err, "the run has ended")) << result.err;
}

TEST(StatusWatch, NamesATaskThatIsKilled) {
  Workers workers(3);
  workers.start_all(kLong);
  workers.task(0).wait_for("started");
  RunningProgram watch(
      {std::string(TANDEM_BIN) + "/tandem", "status", "--watch", "--worker_hosts", workers.hosts()});
  watch.wait_for("running");
  workers.task(1).send(SIGKILL);
  EXPECT_EQ(watch.wait(), 0) << watch.out;
  EXPECT_TRUE(has(watch.out, "the run has ended: worker:1 dead")) << watch.out;
  EXPECT_EQ(workers.task(0).wait(), 75);
  EXPECT_EQ(workers.task(2).wait(), 75);
  EXPECT_EQ(run_tandem({"status", "--worker_hosts", workers.hosts()}).exit_code, 75);
}

// The loss of an evaluator stops nobody.
TEST(StatusWatch, GoesOnWithAnotherTeller) {
  const auto ports = internal::ReservedPorts::choose("127.0.0.1", 2);
  const TempFolder folder;
  const std::string file = folder.file("cluster.json");
  std::ofstream(file) << fmt::format(
      R"({{"cluster": {{"worker": ["127.0.0.1:{}"], "evaluator": ["127.0.0.1:{}"]}}}})", ports.ports()[0],
      ports.ports()[1]);
  const auto start = [&](const std::string& type) {
    std::vector<std::string> command{std::string(TANDEM_BIN) + "/hello_cluster",
                                     "--cluster_file",
                                     file,
                                     "--task_type",
                                     type,
                                     "--task_index",
                                     "0"};
    command.insert(command.end(), kLong.begin(), kLong.end());
    return std::make_unique<RunningProgram>(command);
  };
  const auto worker = start("worker");
  const auto evaluator = start("evaluator");
  evaluator->wait_for("started");
  RunningProgram watch({std::string(TANDEM_BIN) + "/tandem", "status", "--watch", "--json", "--cluster_file",
                        file, "--task", "evaluator:0"});
  watch.wait_for(R"("teller":"evaluator:0")");
  evaluator->send(SIGKILL);
  watch.wait_for(R"("teller":"worker:0")");
  nlohmann::json table;
  EXPECT_TRUE(eventually([&] {
    table = told({"--cluster_file", file, "--task", "evaluator:0"});
    return table["tasks"][1]["state"] == "missing";  // it may come back
  })) << table.dump();
  EXPECT_EQ(table["teller"], "worker:0");
  EXPECT_EQ(table["tasks"][0]["state"], "running");
}

TEST(StatusWatch, DrawsInPlaceOnATerminal) {
  const internal::FileDescriptor terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_GE(terminal.get(), 0);
  ASSERT_EQ(grantpt(terminal.get()), 0);
  ASSERT_EQ(unlockpt(terminal.get()), 0);
  const internal::FileDescriptor inside(open(ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_GE(inside.get(), 0);
  // Room for the heading and one of the two tasks.
  const winsize size{.ws_row = 4, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(inside.get(), TIOCSWINSZ, &size), 0);
  Workers workers(2);
  workers.start_all(kLong);
  workers.task(0).wait_for("started");
  RunningProgram watch({"/usr/bin/env", "TERM=xterm", std::string(TANDEM_BIN) + "/tandem", "status",
                        "--watch", "--worker_hosts", workers.hosts()},
                       inside.get());
  std::string seen;
  EXPECT_TRUE(eventually([&] {
    pollfd end{terminal.get(), POLLIN, 0};
    std::array<char, 4096> block{};
    if (poll(&end, 1, 20) == 1) {
      const ssize_t n = read(terminal.get(), block.data(), block.size());
      if (n > 0) seen.append(block.data(), static_cast<std::size_t>(n));
    }
    return has(seen, "\x1b[3A\x1b[J");  // back to the heading
  })) << seen;
  EXPECT_TRUE(has(seen, "... and 1 more")) << seen;
  EXPECT_FALSE(has(seen, "worker:1")) << seen;
  watch.send(SIGINT);
  EXPECT_EQ(watch.wait(), 128 + SIGINT);
}

TEST(Program, StartsQuickly) {
  std::vector<double> milliseconds;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(run_process({std::string(TANDEM_BIN) + "/tandem", "--help"}).exit_code, 0);
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(milliseconds);
  std::cout << fmt::format("tandem --help: median {:.1f} ms, least {:.1f} ms\n", milliseconds[3],
                           milliseconds[0]);
  EXPECT_LT(milliseconds[3], 200);
}

}  // namespace
}  // namespace tandem
