#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tandem::internal {

// A subcommand of `tandem`: its flags are added to the application when the program starts; what is returned
// does its work once they are parsed, and returns the exit code.
using Work = std::function<int()>;

struct Command {
  CLI::App* app;
  Work work;
};

// certs init, issue and token: what a secured cluster needs.
Command add_certs(CLI::App& app);
// checkpoint ls, inspect, verify, diff and average.
Command add_checkpoint(CLI::App& app);
// config check, show and make: reading, picturing and writing TF_CONFIG.
Command add_config(CLI::App& app);
// data: sets of pictures, fetched or generated.
Command add_data(CLI::App& app);
// A cluster of tasks on this machine.
Command add_launch(CLI::App& app);
// status: what the tasks of a running cluster say of themselves and of each other.
Command add_status(CLI::App& app);
// doctor: why a cluster does not come together.
Command add_doctor(CLI::App& app);

}  // namespace tandem::internal
