#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/cluster_flags.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/program.h"
#include "cli/ps_tellers.h"
#include "cli/status_table.h"
#include "cli/task_names.h"
#include "rpc/observer.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// A task tells twice a second; what takes longer than this is a firewall, or no task at all.
constexpr std::chrono::milliseconds kPatience{3000};

struct StatusFlags : ClusterProgramFlags {
  std::string task;
  bool watch = false;
  bool json = false;
};

// Writes one table after the other; on a terminal each over the one before.
class Screen {
 public:
  Screen(const ClusterSpec& cluster, bool json)
      : cluster_(cluster), json_(json), in_place_(!json && is_terminal(STDOUT_FILENO)) {}

  void show(const rpc::Table& table, const PsTable& ps) {
    if (json_) {
      std::cout << json_table(cluster_, table, ps);
    } else if (!in_place_) {
      std::cout << (std::exchange(first_, false) ? "" : "\n") << text_table(cluster_, table, ps);
    } else {
      draw(text_table(cluster_, table, ps));
    }
    std::cout << std::flush;
  }

 private:
  void draw(std::string text) {
    fit_height(text);
    if (lines_ > 0) std::cout << fmt::format("\x1b[{}A\x1b[J", lines_);
    // The terminal cuts long lines: wrapped ones could not be counted.
    std::cout << "\x1b[?7l" << text << "\x1b[?7h";
    lines_ = std::ranges::count(text, '\n');
  }

  // What has left the screen at its top cannot be drawn over.
  static void fit_height(std::string& text) {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 4) return;
    const auto lines = std::ranges::count(text, '\n');
    const std::ptrdiff_t room = size.ws_row - 2;
    if (lines <= room) return;
    std::size_t end = 0;
    for (std::ptrdiff_t line = 0; line < room; ++line) end = text.find('\n', end) + 1;
    text.resize(end);
    text += fmt::format("... and {} more\n", lines - room);
  }

  const ClusterSpec& cluster_;
  const bool json_;
  const bool in_place_;
  bool first_ = true;
  std::ptrdiff_t lines_ = 0;
};

std::vector<TaskId> whom_to_ask(const ClusterSpec& cluster, const std::string& flag) {
  std::vector<TaskId> tasks = cluster.tasks();
  if (flag.empty()) return tasks;
  const TaskId first = parse_task(flag);
  try {
    cluster.task_address(first);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("--task is {}: {}", flag, error.what()));
  }
  std::ranges::stable_partition(tasks, [&](const TaskId& task) { return task == first; });
  return tasks;
}

// Asks one task after the other until `show` has had enough; true if it had. Else `reasons` says why each of
// them did not answer, or no longer does.
bool ask_in_turn(const Identity& self, const std::vector<TaskId>& tasks,
                 const std::function<bool(const rpc::Table&)>& show, std::vector<std::string>& reasons) {
  for (const TaskId& task : tasks) {
    try {
      observe(self, task, kPatience, show);
      return true;
    } catch (const Unavailable& error) {
      reasons.push_back(printable(error.what()));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("refused by {}", printable(error.what())));
    }
  }
  return false;
}

int status(const StatusFlags& flags) {
  ClusterFlags source = flags.cluster;
  source.task_may_be_missing = true;
  const ClusterSpec cluster = resolve_cluster(source).cluster;
  if (cluster.empty()) {
    throw InvalidArgument(
        "no cluster: give --worker_hosts 10.0.0.1:2222,10.0.0.2:2222 or --cluster_file, or set TF_CONFIG");
  }
  const auto tasks = whom_to_ask(cluster, flags.task);
  // It dials and does not listen, so nobody can come in here.
  const Identity self{.cluster = cluster,
                      .security = load_security(flags.server.security, std::nullopt, /*loopback=*/true)};
  Screen screen(cluster, flags.json);
  PsTellers ps_tellers(self);
  std::optional<rpc::Table> last;
  bool answered = true;
  std::vector<std::string> reasons;
  // A task that told and then ended may have left others that go on.
  while (answered) {
    answered = false;
    reasons.clear();
    const bool enough = ask_in_turn(
        self, tasks,
        [&](const rpc::Table& table) {
          screen.show(table, flags.watch ? ps_tellers.latest() : ps_tellers.ask());
          last = table;
          answered = true;
          return flags.watch;
        },
        reasons);
    if (enough) return kExitDone;
  }
  if (last && tells_the_end(*last)) {
    (flags.json ? std::cerr : std::cout) << "the run has ended: " << states_in_short(*last) << std::endl;
    return kExitDone;
  }
  throw Unavailable(fmt::format("no task answers{}: {}", last ? " any more" : "", fmt::join(reasons, "; ")));
}

}  // namespace

Command add_status(CLI::App& app) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* command = app.add_subcommand("status", "Show the tasks of a running cluster");
  command->add_option("--cluster_file", flags->cluster.cluster_file,
                      "File with the JSON of TF_CONFIG; needs no \"task\" (default: the variable)");
  command->add_option("--worker_hosts", flags->cluster.worker_hosts,
                      "Addresses of the workers, host:port,host:port");
  flags->add_security_flags(*command);
  command->add_option("--task", flags->task, "Whom to ask first, such as worker:1 (default: the chief)");
  command->add_flag("--watch", flags->watch, "Until the run ends or Ctrl-C");
  command->add_flag("--json", flags->json, "One JSON object; with --watch one per line");
  return {command, [flags] { return status(*flags); }};
}

}  // namespace tandem::internal
