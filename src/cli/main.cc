#include <CLI/CLI.hpp>
#include <vector>

#include "cli/commands.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  using namespace tandem::internal;
  CLI::App app("Runs and inspects clusters of training programs", "tandem");
  app.set_version_flag("--version", TANDEM_VERSION);
  app.require_subcommand(1);
  const std::vector<Command> commands = {add_launch(app),     add_status(app), add_doctor(app),
                                         add_checkpoint(app), add_config(app), add_certs(app),
                                         add_data(app)};
  return run_program(app, argc, argv, [&] {
    for (const auto& command : commands) {
      if (command.app->parsed()) return command.work();
    }
    return static_cast<int>(kExitWrongInput);
  });
}
