// Several processes find each other, start together, count steps, and end together; no model, no tensor. The
// first thing to try on new machines, and with other people's firewalls. In two terminals:
//
//   hello_cluster --worker_hosts localhost:20000,localhost:20001 --task_index 0
//   hello_cluster --worker_hosts localhost:20000,localhost:20001 --task_index 1
//
// or in one:
//
//   tandem launch --workers 2 -- hello_cluster --steps 20
//
// Each prints when it started (milliseconds since 1970) and how it ended:
//
//   worker:0 started 1763251200123
//   worker:0 done after 20 steps
//
// Kill one: the others name it and exit with 75.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "cli/cluster_flags.h"
#include "cli/program.h"
#include "tandem/error.h"
#include "tandem/task_server.h"

namespace {

struct Flags : tandem::internal::ClusterProgramFlags {
  std::int64_t steps = 50;
  int step_ms = 100;
  std::string batch_size = "128";
};

std::int64_t milliseconds_since_1970() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

void say(const tandem::TaskServer& server, const std::string& what) {
  fmt::print("{} {}\n", server.task().name(), what);
  std::fflush(stdout);
}

void run(const Flags& flags) {
  const auto resolved = tandem::resolve_cluster(flags.cluster);
  if (!resolved.task) {
    throw tandem::InvalidArgument(
        "no cluster: give --worker_hosts localhost:20000,localhost:20001 --task_index 0, or set TF_CONFIG");
  }
  auto options = flags.server_options();
  options.program = {{"batch_size", flags.batch_size}, {"steps", std::to_string(flags.steps)}};
  tandem::TaskServer server(resolved.cluster, resolved.task->type, resolved.task->index, options);
  say(server, fmt::format("listens at {}", server.target()));
  try {
    server.wait_for_all();
    say(server, fmt::format("started {}", milliseconds_since_1970()));
    if (resolved.task->type == "ps" || resolved.task->type == "evaluator") {
      server.join();
      return say(server, "done: the others have finished");
    }
    for (std::int64_t step = 1; step <= flags.steps; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(flags.step_ms));
      server.set_progress(step, 1000.0 / flags.step_ms);
      server.check();
    }
    server.finish();
    say(server, fmt::format("done after {} steps", flags.steps));
  } catch (const tandem::Unavailable&) {
    if (const auto lost = server.lost()) {
      say(server, fmt::format("lost {} {} {}", lost->task.name(), lost->evidence, milliseconds_since_1970()));
    }
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Starts a task of a cluster that only counts", "hello_cluster");
  Flags flags;
  flags.add_cluster_flags(app);
  flags.add_security_flags(app);
  flags.add_server_flags(app);
  app.add_option("--steps", flags.steps, "Steps to count")->capture_default_str();
  app.add_option("--step_ms", flags.step_ms, "Milliseconds of a step")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "Means nothing here, but must be the same everywhere")
      ->capture_default_str();
  return tandem::internal::run_program(app, argc, argv, [&] {
    run(flags);
    return 0;
  });
}
