#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/ports.h"
#include "cli/cluster_layout.h"
#include "cli/commands.h"
#include "cli/supervisor.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// TensorFlow's documents begin at this port.
constexpr int kUsualPort = 2222;
constexpr int kMostTasks = 1000;

struct LaunchFlags {
  ClusterShape shape;
  std::string host = "127.0.0.1";
  std::vector<std::string> hosts;
  int base_port = 0;
  double grace = 10;
  bool keep_going = false;
  bool print = false;
  std::vector<std::string> command;
};

void check(const LaunchFlags& flags) {
  const ClusterShape& shape = flags.shape;
  const auto possible = [](int count) { return count >= 0 && count <= kMostTasks; };
  if (!possible(shape.workers) || !possible(shape.ps)) {
    throw InvalidArgument(fmt::format("launch: --workers {} --ps {}: expected 0 to {} of each", shape.workers,
                                      shape.ps, kMostTasks));
  }
  if (shape.workers == 0 && !shape.chief) {
    throw InvalidArgument(
        "launch: no worker and no chief to start, e.g. tandem launch --workers 2 -- PROGRAM ARGS");
  }
  if (flags.command.empty() || flags.command[0].empty()) {
    throw InvalidArgument(
        "launch: no program to run: put it behind \"--\", e.g. tandem launch --workers 2 -- PROGRAM ARGS");
  }
  if (!(flags.grace >= 0))
    throw InvalidArgument(fmt::format("launch: --grace is {}: expected 0 or more seconds", flags.grace));
  if (flags.base_port < 0 || flags.base_port > 65535)
    throw InvalidArgument(fmt::format("launch: --base_port is {}: expected 1 to 65535", flags.base_port));
  if (flags.keep_going && shape.ps == 0) {
    throw InvalidArgument(
        "launch: --keep_going needs --ps: only with parameter servers can the others go on without a worker");
  }
  if (!flags.hosts.empty() && !flags.print) {
    throw InvalidArgument(
        "launch: --hosts needs --print: tasks are started on this machine only; --print shows what to type "
        "on each of the others");
  }
}

void print_commands(const std::vector<PlacedTask>& tasks, const std::vector<std::string>& command) {
  std::string words;
  for (const auto& word : command) words += " " + shell_quoted(word);
  for (const auto& task : tasks) {
    std::cout << fmt::format("# {} on {}\nTF_CONFIG={}{}\n", task.name(), task.host,
                             shell_quoted(tf_config(tasks, task)), words);
  }
  std::cout << std::flush;
}

int launch(const LaunchFlags& flags) {
  check(flags);
  if (!flags.hosts.empty()) {
    const int base_port = flags.base_port > 0 ? flags.base_port : kUsualPort;
    print_commands(place_on_hosts(flags.shape, flags.hosts, base_port), flags.command);
    return 0;
  }
  const int count = flags.shape.num_tasks();
  const auto reserved = flags.base_port > 0 ? ReservedPorts::from(flags.host, flags.base_port, count)
                                            : ReservedPorts::choose(flags.host, count);
  const auto placed = place_on_host(flags.shape, flags.host, reserved.ports());
  if (flags.print) {
    print_commands(placed, flags.command);
    return 0;
  }
  std::vector<SupervisedTask> tasks;
  for (const auto& task : placed) {
    const bool is_chief = task.type == "chief" || (!flags.shape.chief && task.index == 0);
    tasks.push_back({.name = task.name(),
                     .helper = task.type == "ps" || task.type == "evaluator",
                     .expendable = flags.keep_going && task.type == "worker" && !is_chief,
                     .variables = {"TF_CONFIG=" + tf_config(placed, task)}});
  }
  return supervise(tasks, {.command = flags.command, .grace = std::chrono::duration<double>(flags.grace)});
}

}  // namespace

Command add_launch(CLI::App& app) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* command = app.add_subcommand("launch", "Start a cluster of tasks on this machine");
  command->add_option("-n,--workers", flags->shape.workers, "How many worker tasks");
  command->add_option("--ps", flags->shape.ps, "How many parameter server tasks");
  command->add_flag("--chief", flags->shape.chief, "A chief task besides the workers");
  command->add_flag("--evaluator", flags->shape.evaluator, "An evaluator task");
  command->add_option("--host", flags->host, "The address of this machine on which the tasks listen")
      ->capture_default_str();
  command->add_option("--base_port", flags->base_port,
                      "Their ports, from this one upwards (default: free ones; with --hosts: 2222)");
  command
      ->add_option("--grace", flags->grace,
                   "Seconds that the others may go on after a task has failed, or ps and evaluator after the "
                   "workers are done")
      ->capture_default_str();
  command->add_flag(
      "--keep_going", flags->keep_going,
      "With --ps: a worker that is killed, or exits with 75, is no failure unless it is the chief");
  command->add_flag("--print", flags->print, "Start nothing: print the command of each task");
  command
      ->add_option("--hosts", flags->hosts, "With --print: machines to put the tasks on, in turn: h1,h2:2222")
      ->delimiter(',');
  command->add_option("PROGRAM", flags->command, "The program and its arguments, behind \"--\"");
  return {command, [flags] { return launch(*flags); }};
}

}  // namespace tandem::internal
