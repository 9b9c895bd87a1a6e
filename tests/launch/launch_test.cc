// `tandem launch` as a user has it: a process that starts others, here small shell scripts.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "support/process.h"
#include "support/running_program.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using nlohmann::json;
using testing_support::adopt_orphans;
using testing_support::no_descendant_left;
using testing_support::ProcessResult;
using testing_support::run_process;
using testing_support::RunningProgram;
using testing_support::TempFolder;

// Scripts begin with this: $me is "worker:0".
const std::string kWhoAmI =
    R"sh(me=$(printf %s "$TF_CONFIG" | sed 's/.*"type":"\([a-z]*\)","index":\([0-9]*\).*/\1:\2/'); )sh";

std::vector<std::string> launch_command(std::vector<std::string> flags, const std::string& script) {
  flags.insert(flags.begin(), {std::string(TANDEM_BIN) + "/tandem", "launch"});
  flags.insert(flags.end(), {"--", "/bin/sh", "-c", kWhoAmI + script});
  return flags;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::set<std::string> sorted_lines(const std::string& text) {
  const auto lines = lines_of(text);
  return {lines.begin(), lines.end()};
}

// Every test also finds that no process is left behind.
class Launch : public testing::Test {
 protected:
  void SetUp() override { adopt_orphans(); }
  void TearDown() override { EXPECT_TRUE(no_descendant_left()) << "a process was left behind"; }

  static ProcessResult launch(const std::vector<std::string>& flags, const std::string& script) {
    return run_process(launch_command(flags, script), 60);
  }
};

TEST_F(Launch, PrefixesTheLinesOfEveryTask) {
  const ProcessResult result = launch({"-n", "2"}, R"(echo out; echo more; echo err >&2; printf partial)");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (std::set<std::string>{"[worker:0] out", "[worker:0] more", "[worker:0] partial",
                                   "[worker:1] out", "[worker:1] more", "[worker:1] partial"}));
  EXPECT_EQ(sorted_lines(result.err), (std::set<std::string>{"[worker:0] err", "[worker:1] err"}));
}

TEST_F(Launch, GivesEveryTaskItsTfConfig) {
  const ProcessResult result =
      launch({"--workers", "2", "--ps=2", "--chief", "--evaluator"}, R"(echo "$TF_CONFIG")");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::map<std::string, json> configs;
  for (const auto& line : lines_of(result.out)) {
    const auto end = line.find("] ");
    configs[line.substr(1, end - 1)] = json::parse(line.substr(end + 2));
  }
  ASSERT_EQ(configs.size(), 6u) << result.out;
  const json cluster = configs["chief:0"]["cluster"];
  EXPECT_EQ(cluster.size(), 4u);
  std::set<std::string> addresses;
  for (const auto& [job, tasks] : cluster.items()) {
    EXPECT_EQ(tasks.size(), job == "worker" || job == "ps" ? 2u : 1u);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const json& config = configs[job + ":" + std::to_string(i)];
      EXPECT_EQ(config["cluster"], cluster);
      EXPECT_EQ(config["task"], (json{{"type", job}, {"index", i}}));
      EXPECT_EQ(tasks[i].get<std::string>().find("127.0.0.1:"), 0u);
      EXPECT_TRUE(addresses.insert(tasks[i]).second) << "an address twice";
    }
  }
}

TEST_F(Launch, PassesArgumentsAsTheyAre) {
  const std::vector<std::string> arguments = {"-n", "--two-words", "",   "it's", "a b",
                                              "--", "launch",      "{}", "%%"};
  std::vector<std::string> command = {
      std::string(TANDEM_BIN) + "/tandem", "launch", "-n", "1", "--", "/usr/bin/printf", "<%s>"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::string expected = "[worker:0] ";
  for (const auto& argument : arguments) expected += "<" + argument + ">";
  EXPECT_EQ(run_process(command).out, expected + "\n");
}

TEST_F(Launch, FindsTheProgramInPath) {
  const ProcessResult result =
      run_process({std::string(TANDEM_BIN) + "/tandem", "launch", "-n", "1", "--", "echo", "found"});
  EXPECT_EQ(result.out, "[worker:0] found\n");
}

TEST_F(Launch, GivesATaskNoDescriptorsButTheStandardOnes) {
  RunningProgram launcher(launch_command({"-n", "2"}, R"([ "$me" = worker:0 ] || exec ls /proc/self/fd)"));
  EXPECT_EQ(launcher.wait(), 0);
  // ls itself has the folder open.
  EXPECT_EQ(launcher.out, "[worker:1] 0\n[worker:1] 1\n[worker:1] 2\n[worker:1] 3\n");
}

TEST_F(Launch, ExitsWithTheFirstFailure) {
  const ProcessResult result = launch({"-n", "3", "--grace", "20"},
                                      R"([ "$me" = worker:1 ] && exit 3; sleep 0.5; echo saved; exit 75)");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.err.find("tandem: worker:1 exited with 3 after "), 0u) << result.err;
  EXPECT_NE(result.err.find(" s (first failure)\n"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("(first failure)"), result.err.rfind("(first failure)"));
  EXPECT_EQ(sorted_lines(result.out), (std::set<std::string>{"[worker:0] saved", "[worker:2] saved"}))
      << "the others had time to end by themselves";
}

TEST_F(Launch, SaysWhichSignalKilledATask) {
  const ProcessResult result = launch({"-n", "1"}, "kill -KILL $$");
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_NE(result.err.find("tandem: worker:0 was killed by SIGKILL after "), std::string::npos)
      << result.err;
}

TEST_F(Launch, StopsTheOthersWhenTheirGraceIsOver) {
  const ProcessResult result =
      launch({"-n", "2", "--grace=0.2"},
             R"([ "$me" = worker:1 ] && exit 3; trap 'echo told; exit 5' TERM; sleep 60 >&- 2>&- & wait)");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "[worker:0] told\n");
  EXPECT_NE(result.err.find("tandem: worker:0 did not end within 0.2 s: sending SIGTERM\n"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("exited with 5"), std::string::npos) << "it was told to";
}

TEST_F(Launch, KillsWhatDoesNotListen) {
  const ProcessResult result =
      launch({"-n", "2", "--grace", "0.1"},
             R"([ "$me" = worker:1 ] && exit 4; trap '' TERM; while :; do sleep 5; done)");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.err.find("worker:0 did not end within 5 s of SIGTERM: killing"), std::string::npos)
      << result.err;
}

TEST_F(Launch, StopsParameterServersWhenTheWorkersAreDone) {
  const ProcessResult result =
      launch({"-n", "1", "--ps", "1", "--evaluator", "--grace", "0.1"},
             R"([ "$me" = worker:0 ] && exit 0; trap 'exit 42' TERM; sleep 60 >&- 2>&- & wait)");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(
      result.err,
      "tandem: every worker is done: stopping ps:0, evaluator:0 with SIGTERM, which is not a failure\n");
}

TEST_F(Launch, LetsParameterServersEndByThemselves) {
  const ProcessResult result =
      launch({"-n", "1", "--ps", "1"}, R"([ "$me" = worker:0 ] && exit 0; sleep 0.3; echo bye)");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "[ps:0] bye\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(Launch, FailsWhenAHelperFails) {
  const ProcessResult early =
      launch({"-n", "1", "--ps", "1", "--grace", "0.1"}, R"([ "$me" = ps:0 ] && exit 9; exec sleep 60)");
  EXPECT_EQ(early.exit_code, 9) << early.err;
  const ProcessResult late =
      launch({"-n", "1", "--evaluator"}, R"([ "$me" = worker:0 ] && exit 0; sleep 0.2; exit 8)");
  EXPECT_EQ(late.exit_code, 8) << late.err;
}

TEST_F(Launch, KeepsGoingWithoutAWorkerThatDies) {
  const std::string script =
      R"([ "$me" = worker:1 ] && kill -KILL $$; [ "$me" = worker:2 ] && exit 75; sleep 0.3; echo bye)";
  const ProcessResult result = launch({"-n", "4", "--ps", "1", "--keep_going", "--grace", "20"}, script);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (std::set<std::string>{"[worker:0] bye", "[worker:3] bye", "[ps:0] bye"}));
  EXPECT_NE(result.err.find("tandem: worker:1 was killed by SIGKILL after "), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("tandem: worker:2 exited with 75 after "), std::string::npos) << result.err;
  EXPECT_EQ(lines_of(result.err).size(), 2u) << result.err;
  for (const auto& line : lines_of(result.err)) {
    EXPECT_TRUE(line.ends_with(" s: the others go on without it")) << line;
  }
  EXPECT_NE(launch({"-n", "3", "--ps", "1", "--grace", "20"}, script).exit_code, 0) << "without the flag";
}

TEST_F(Launch, DoesNotKeepGoingWithoutTheChiefOrAPs) {
  const std::vector<std::string> flags{"-n", "2", "--ps", "1", "--keep_going", "--grace", "0.1"};
  EXPECT_EQ(launch(flags, R"([ "$me" = worker:0 ] && kill -KILL $$; exec sleep 60)").exit_code, 137);
  EXPECT_EQ(launch(flags, R"([ "$me" = ps:0 ] && kill -KILL $$; exec sleep 60)").exit_code, 137);
  EXPECT_EQ(launch(flags, R"([ "$me" = worker:1 ] && exit 3; exec sleep 60)").exit_code, 3)
      << "that is an error of its own";
  const ProcessResult with_chief = launch({"-n", "1", "--chief", "--ps", "1", "--keep_going"},
                                          R"([ "$me" = worker:0 ] && kill -KILL $$; sleep 0.2)");
  EXPECT_EQ(with_chief.exit_code, 0) << with_chief.err;
  const ProcessResult without_ps = launch({"-n", "2", "--keep_going"}, "true");
  EXPECT_EQ(without_ps.exit_code, 2);
  EXPECT_NE(without_ps.err.find("--keep_going needs --ps"), std::string::npos) << without_ps.err;
}

TEST_F(Launch, PassesSignalsOn) {
  for (const auto& [signal, name] : std::map<int, std::string>{
           {SIGINT, "INT"}, {SIGTERM, "TERM"}, {SIGHUP, "HUP"}, {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}}) {
    RunningProgram launcher(launch_command({"-n", "2"}, "trap 'echo got " + name + "; exit 0' " + name +
                                                            "; sleep 60 >&- 2>&- & echo ready; wait"));
    launcher.wait_for("ready", 2);
    launcher.send(signal);
    EXPECT_EQ(launcher.wait(), 0) << name << "\n" << launcher.out;
    EXPECT_EQ(launcher.count("[worker:0] got " + name + "\n"), 1) << launcher.out;
    EXPECT_EQ(launcher.count("[worker:1] got " + name + "\n"), 1) << launcher.out;
  }
}

TEST_F(Launch, ExitsAsTheTasksDidThatASignalEnded) {
  RunningProgram launcher(launch_command({"-n", "2"}, "echo ready; exec sleep 60"));
  launcher.wait_for("ready", 2);
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143);
}

TEST_F(Launch, KillsWhenInterruptedTwice) {
  RunningProgram launcher(launch_command(
      {"-n", "2"}, "trap 'echo once' INT; trap '' TERM; echo ready; while :; do sleep 0.1; done"));
  launcher.wait_for("ready", 2);
  launcher.send(SIGINT);
  launcher.wait_for("once", 2);
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.wait(4), 130);
  EXPECT_EQ(launcher.count("tandem: interrupted twice: killing worker:0, worker:1\n"), 1) << launcher.out;
}

TEST_F(Launch, LeavesNothingBehindWhenItIsKilled) {
  // Neither the tasks, nor their children, nor those that ignore all that can be ignored.
  RunningProgram launcher(launch_command(
      {"-n", "3"},
      "trap '' INT TERM HUP; sleep 600 & (trap '' TERM; sleep 600 | sleep 600) & echo ready; wait"));
  launcher.wait_for("ready", 3);
  launcher.send(SIGKILL);
  EXPECT_EQ(launcher.wait(), 137);
  EXPECT_TRUE(no_descendant_left());
}

TEST_F(Launch, TakesTheChildrenOfATaskDownWithIt) {
  const ProcessResult result = launch({"-n", "2"}, "sleep 600 >&- 2>&- & exit 0");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(no_descendant_left());
}

TEST_F(Launch, WaitsAMomentForWhatATasksChildStillPrints) {
  const ProcessResult result = launch({"-n", "1"}, "(sleep 0.3; echo last words) & exit 0");
  EXPECT_EQ(result.out, "[worker:0] last words\n");
}

TEST_F(Launch, LeavesNothingBehindInFiftyRounds) {
  for (int round = 0; round < 50; ++round) {
    RunningProgram launcher(launch_command({"-n", "2", "--ps", "1", "--grace", "0"},
                                           R"(sleep 600 >&- 2>&- & echo ready; [ "$me" = worker:1 ] && [ )" +
                                               std::to_string(round % 4) + " = 0 ] && exit 7; wait"));
    launcher.wait_for("ready", round % 4 == 0 ? 1 : 3);
    const int signal = std::array{0, SIGTERM, SIGINT, SIGKILL}[static_cast<std::size_t>(round % 4)];
    if (signal != 0) launcher.send(signal);
    EXPECT_EQ(launcher.wait(), signal == 0 ? 7 : 128 + signal) << launcher.out;
  }
  EXPECT_TRUE(no_descendant_left());
}

TEST_F(Launch, KeepsALotOfOutputWholeAndInOrder) {
  // 3 times 10 MB, in lines of different lengths.
  const int lines = 100'000;
  const ProcessResult result = run_process(
      launch_command({"-n", "3"}, R"(exec awk 'BEGIN { pad = sprintf("%150s", ""); gsub(/ /, "x", pad);
             for (i = 0; i < 100000; ++i) print i, substr(pad, 1, 50 + i % 100) }')"),
      100);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(result.out.size(), 30'000'000u);
  std::map<std::string, int> next;
  const std::string pad(150, 'x');
  for (const auto& line : lines_of(result.out)) {
    const std::string task = line.substr(0, line.find(' '));
    const int i = next[task]++;
    const std::string expected =
        task + " " + std::to_string(i) + " " + pad.substr(0, 50 + static_cast<std::size_t>(i) % 100);
    ASSERT_EQ(line, expected);
  }
  EXPECT_EQ(next, (std::map<std::string, int>{
                      {"[worker:0]", lines}, {"[worker:1]", lines}, {"[worker:2]", lines}}));
}

TEST_F(Launch, ListensToSignalsThoughNoOneReadsItsOutput) {
  RunningProgram launcher(launch_command({"-n", "2"}, "echo ready; exec yes"));
  launcher.wait_for("ready", 2);
  // The first ends the tasks; a later one ends the wait for a reader of what they printed.
  std::optional<int> exit_code;
  for (int i = 0; i < 500 && !exit_code; ++i) {
    launcher.send(SIGTERM);
    usleep(20'000);
    exit_code = launcher.ended();
  }
  EXPECT_EQ(exit_code, 143);
}

TEST_F(Launch, EndsWhenItsOutputIsClosed) {
  RunningProgram launcher(launch_command({"-n", "2"}, "exec yes"));
  launcher.wait_for("y\n", 10);
  launcher.stop_reading();
  EXPECT_EQ(launcher.wait(), 128 + SIGPIPE);
}

TEST_F(Launch, PrintsCommandsThatAShellUnderstands) {
  const TempFolder folder;
  const std::vector<std::string> command = {std::string(TANDEM_BIN) + "/tandem",
                                            "launch",
                                            "-n",
                                            "2",
                                            "--ps",
                                            "1",
                                            "--print",
                                            "--hosts",
                                            "h1:4000,h2",
                                            "--base-port",
                                            "3000",
                                            "--",
                                            "/bin/sh",
                                            "-c",
                                            R"(printf '%s\n' "$TF_CONFIG" "$1")",
                                            "sh",
                                            R"(it's "$HOME" `x` \ )"};
  const ProcessResult printed = run_process(command);
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_EQ(printed.out.find("# worker:0 on h1\nTF_CONFIG="), 0u) << printed.out;
  const ProcessResult result = run_process({"/bin/sh", "-c", printed.out});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 6u) << result.out;
  const json cluster = json::parse(R"({"worker": ["h1:4000", "h2:3000"], "ps": ["h1:4001"]})");
  const std::vector<std::pair<std::string, int>> tasks = {{"worker", 0}, {"worker", 1}, {"ps", 0}};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    EXPECT_EQ(json::parse(lines[2 * i]),
              (json{{"cluster", cluster}, {"task", {{"type", tasks[i].first}, {"index", tasks[i].second}}}}));
    EXPECT_EQ(lines[2 * i + 1], command.back());
  }
}

TEST_F(Launch, RefusesWithOneLine) {
  const auto refuses = [](std::vector<std::string> flags, const std::string& part) {
    flags.insert(flags.begin(), {std::string(TANDEM_BIN) + "/tandem", "launch"});
    const ProcessResult result = run_process(flags);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.err.find("tandem: "), 0u) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  const TempFolder folder;
  refuses({"--", "true"}, "no worker and no chief");
  refuses({"--ps", "1", "--", "true"}, "no worker and no chief");
  refuses({"-n", "2"}, "no program");
  refuses({"-n", "2", "--"}, "no program");
  refuses({"-n", "2", "--", ""}, "no program");
  refuses({"-n", "-1", "--chief", "--", "true"}, "--workers -1");
  refuses({"-n", "2000000000", "--ps", "2000000000", "--", "true"}, "expected 0 to 1000");
  refuses({"-n", "many", "--", "true"}, "many");
  refuses({"-n", "1", "--grace", "-1", "--", "true"}, "--grace is -1");
  refuses({"-n", "1", "--base_port", "70000", "--", "true"}, "--base_port is 70000");
  refuses({"-n", "3", "--base_port", "65534", "--", "true"}, "65534");
  refuses({"-n", "1", "--host", "192.0.2.1", "--", "true"}, "not an address of this machine");
  refuses({"-n", "1", "--hosts", "h1", "--", "true"}, "--hosts needs --print");
  refuses({"-n", "2", "--", folder.file("none")}, "cannot run \"" + folder.file("none") + "\": No such file");
  refuses({"-n", "2", "--", folder.path()}, "Permission denied");
}

// What comes out of `tandem launch` at a terminal.
std::string at_terminal(const std::string& script) {
  const internal::FileDescriptor terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  EXPECT_TRUE(terminal && grantpt(terminal.get()) == 0 && unlockpt(terminal.get()) == 0);
  internal::FileDescriptor user_side(open(ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  RunningProgram launcher(launch_command({"-n", "1"}, script), user_side.get());
  user_side.reset();
  std::string shown;
  std::array<char, 4096> block{};
  // Ends with EIO when no one has the terminal open.
  for (ssize_t n = 0; (n = read(terminal.get(), block.data(), block.size())) > 0;)
    shown.append(block.data(), static_cast<std::size_t>(n));
  EXPECT_EQ(launcher.wait(), 0);
  return shown;
}

TEST_F(Launch, ColoursNamesAtATerminal) {
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_EQ(at_terminal(R"(printf '10%%\r20%%\n')"),
            "\x1b[K\x1b[32m[worker:0]\x1b[0m 10%\r\x1b[K\x1b[32m[worker:0]\x1b[0m 20%\r\n");
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(at_terminal("echo x"), "\x1b[K[worker:0] x\r\n");
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(at_terminal("echo x"), "[worker:0] x\r\n");
  unsetenv("TERM");
}

}  // namespace
}  // namespace tandem
