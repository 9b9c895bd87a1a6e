// A task that sums numbers with the others, over and over; no model, no torch. For tests that kill it in the
// middle.
//
//   summing_task --worker_hosts localhost:20000,localhost:20001 --task_index 0 [--steps N] [--count N]
//
// Prints when it started, and how it ended:
//   worker:0 started 1763251200123
//   worker:0 lost worker:2 dead 1763251200456
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster_flags.h"
#include "cli/program.h"
#include "strategy/task_group.h"
#include "tandem/error.h"

namespace {

struct Flags : tandem::internal::ClusterProgramFlags {
  std::int64_t steps = 100;
  std::int64_t count = 1 << 18;
  int data_port = 0;
};

std::int64_t milliseconds_since_1970() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

void say(const std::string& what) {
  fmt::print("{}\n", what);
  std::fflush(stdout);
}

void run(const Flags& flags) {
  const auto resolved = tandem::resolve_cluster(flags.cluster);
  if (!resolved.task) throw tandem::InvalidArgument("no cluster: give --worker_hosts and --task_index");
  const std::string self = resolved.task->name();
  tandem::internal::TaskGroup group({.cluster = resolved.cluster,
                                     .task = *resolved.task,
                                     .server = flags.server_options(),
                                     .data_port = flags.data_port,
                                     .communication = {}});
  say(fmt::format("{} started {}", self, milliseconds_since_1970()));
  std::vector<float> values(static_cast<std::size_t>(flags.count));
  try {
    for (std::int64_t step = 1; step <= flags.steps; ++step) {
      std::fill(values.begin(), values.end(), 1.0F);
      group.run([&] {
        group.communicator().all_reduce("values",
                                        {values.data(), flags.count, tandem::ElementType::kFloat32});
      });
      if (values.front() != static_cast<float>(group.size()) || values.back() != values.front()) {
        throw tandem::Error(tandem::ErrorCode::kInternal, fmt::format("the sum is {}", values.front()));
      }
      group.set_progress(step, 0);
    }
    say(fmt::format("{} done after {} steps", self, flags.steps));
  } catch (const tandem::Error&) {
    const auto lost = group.lost();
    say(fmt::format("{} lost {} {} {}", self, lost ? lost->task.name() : "nobody",
                    lost ? lost->evidence : "none", milliseconds_since_1970()));
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Sums numbers with the other tasks of a cluster", "summing_task");
  Flags flags;
  flags.add_cluster_flags(app);
  flags.add_security_flags(app);
  flags.add_server_flags(app);
  app.add_option("--steps", flags.steps, "Sums to form")->capture_default_str();
  app.add_option("--count", flags.count, "Numbers in a sum")->capture_default_str();
  app.add_option("--data_port", flags.data_port, "Port for the data (0: any)")->capture_default_str();
  return tandem::internal::run_program(app, argc, argv, [&] {
    run(flags);
    return 0;
  });
}
