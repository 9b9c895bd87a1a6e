#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tandem::internal {

struct SupervisedTask {
  std::string name;  // "worker:0"
  // Serves the others and never ends by itself (ps, evaluator): stopped once they are done.
  bool helper = false;
  // The others can do without it: if it is killed, or loses those it needs (exit code 75), that is no
  // failure.
  bool expendable = false;
  // "NAME=value" each.
  std::vector<std::string> variables = {};
};

struct SuperviseOptions {
  // The program and its arguments, the same for every task.
  std::vector<std::string> command;

  // How long the others may go on after a task has failed: they notice by themselves and may want to save.
  std::chrono::duration<double> grace{10};
  // From SIGTERM, for those that went on longer, to SIGKILL.
  std::chrono::duration<double> grace_after_term{5};
};

// Starts every task and waits for their end; their lines come out with their names in front. Signals that
// this process gets are passed on (a second SIGINT kills). Whatever happens, no process is left when it
// returns or throws.
//
// Returns 0 if every task that is neither a helper nor expendable exited with 0, else what the first task
// that failed exited with. Throws InvalidArgument if the program cannot be run. To be called before any
// thread is started.
int supervise(const std::vector<SupervisedTask>& tasks, const SuperviseOptions& options);

}  // namespace tandem::internal
