#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tandem::internal {

// What a program of tandem exits with; a scheduler can tell from it whether to start the program again.
enum ExitCode {
  kExitDone = 0,
  kExitFailed = 1,
  kExitWrongInput = 2,     // a flag, the configuration or a file: the same command will fail again
  kExitPreempted = 42,     // stopped by SIGTERM after saving: start the same command again
  kExitNoCheckpoint = 65,  // there are checkpoints, and all that were tried are damaged
  kExitPeerLost = 75,      // a task is gone or never came: the same command may work
};

// Parses the command line (a dash in a flag's name is read as an underscore; what follows "--" is left as it
// is) and calls body(). Every failure ends as one line on standard error; returns the exit code.
int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body);

}  // namespace tandem::internal
