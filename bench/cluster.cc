// How soon the tasks of a cluster start together, and how soon they know that one is gone. Real processes
// (examples/hello_cluster) on this machine; nothing but the control plane.
//
//   bench/cluster [--rounds 50]        (builds first; about a minute)
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/cluster_of_processes.h"
#include "turns.h"

namespace tandem::bench {
namespace {

using testing_support::ClusterOfProcesses;
using testing_support::milliseconds_since_1970;
using testing_support::RunningProgram;

constexpr double kMillisecondsPerSecond = 1000;

void print(const std::string& what, std::vector<double> milliseconds) {
  std::ranges::sort(milliseconds);
  const auto at = [&](std::size_t percent) {
    return milliseconds[(milliseconds.size() - 1) * percent / 100];
  };
  fmt::print("  {:<56} {:>7.1f} {:>7.1f} {:>7.1f}\n", what, at(50), at(99), milliseconds.back());
  std::fflush(stdout);
}

std::vector<double> repeat(int rounds, const std::function<double()>& measure) {
  std::vector<double> values;
  for (int round = 0; round < rounds; ++round) values.push_back(measure());
  return values;
}

double run_to_end(const std::vector<std::string>& command) {
  return kMillisecondsPerSecond * seconds_of([&] { RunningProgram(command).wait(); });
}

// From the start of the last process until the last of all knows that all are there.
double all_started(int tasks) {
  ClusterOfProcesses cluster(tasks, {"--steps", "1", "--step_ms", "1"});
  for (int task = 0; task + 1 < tasks; ++task) cluster.start(task);
  for (int task = 0; task + 1 < tasks; ++task) cluster[task].wait_for(" waiting for 1 of ");
  const auto last = milliseconds_since_1970();
  cluster.start(tasks - 1);
  std::int64_t all = 0;
  for (int task = 0; task < tasks; ++task) all = std::max(all, cluster.started_at(task));
  for (int task = 0; task < tasks; ++task) cluster[task].wait();
  return static_cast<double>(all - last);
}

// From the signal until the last of the others names the task.
double noticed(int tasks, int victim, int signal) {
  ClusterOfProcesses cluster(tasks, {"--steps", "1000000", "--step_ms", "1"});
  cluster.start_all();
  for (int task = 0; task < tasks; ++task) cluster.started_at(task);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto sent = milliseconds_since_1970();
  cluster[victim].send(signal);
  std::int64_t all = 0;
  for (int task = 0; task < tasks; ++task) {
    if (task != victim) all = std::max(all, cluster.lost(task).at);
  }
  return static_cast<double>(all - sent);
}

void measure(int rounds) {
  fmt::print("Milliseconds, {} rounds{:<33} {:>7} {:>7} {:>7}\n", rounds, "", "median", "p99", "longest");
  print("tandem --help", repeat(rounds, [] { return run_to_end({TANDEM_BIN "/tandem", "--help"}); }));
  print("a task's process that only prints its help (the floor)", repeat(rounds, [] {
          return run_to_end({TANDEM_BIN "/hello_cluster", "--help"});
        }));
  for (const int tasks : {2, 8}) {
    print(fmt::format("last task's start to all started, {} tasks", tasks),
          repeat(rounds, [&] { return all_started(tasks); }));
  }
  for (const int tasks : {2, 3, 8}) {
    print(fmt::format("SIGKILL to all others naming it, {} tasks", tasks),
          repeat(rounds, [&, victim = 0]() mutable { return noticed(tasks, victim++ % tasks, SIGKILL); }));
  }
  const int stops = std::max(1, rounds / 5);  // each takes a second
  print(fmt::format("SIGSTOP to all others naming it, 3 tasks, {} rounds", stops),
        repeat(stops, [victim = 0]() mutable { return noticed(3, victim++ % 3, SIGSTOP); }));
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app("Measures how tasks start together and notice a loss", "bench_cluster");
  int rounds = 50;
  app.add_option("--rounds", rounds, "Of each measurement")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  tandem::bench::measure(rounds);
  return 0;
}
