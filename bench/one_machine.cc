// What tandem makes of one machine: how fast it steps, reads and adds, how soon it begins, how much memory it
// takes.
//
//   bench/run                          (builds first; about five minutes on two idle cores)
//   bench_one_machine --rounds 10 --only step
//   bench_one_machine --json figures.json
//
// Variants that are compared take turns in short rounds, so the ratios hold on a machine that is not quite
// idle, where images/s do not. A rate is the median over the rounds; a ratio is the median of the ratios
// within each round, with the bounds of their middle half beside it. Ends with a list of what the figures
// should come to, such as
//
//   128 per replica: mirrored / no exchange    0.985  at least 0.960  met
//
// A bar that is not met is a measurement, not a failure: the exit code is 0 all the same.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>

#include "report.h"
#include "sections.h"
#include "tandem/error.h"

namespace {

using namespace tandem::bench;

constexpr int kFailed = 1;
constexpr int kWrongInput = 2;

struct Flags {
  int rounds = 60;
  std::string only = {};
  std::string data_dir = {};
  std::string json = {};
  bool first_step_probe = false;
  int memory_probe = 0;  // replicas
  bool central_probe = false;
  std::string step_worker = {};
  std::string all_reduce_worker = {};

  void add_to(CLI::App& app) {
    app.add_option("--rounds", rounds, "Turns of each variant; more are more exact")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    app.add_option("--only", only, "One part alone: input, all_reduce, step, fit, start or memory")
        ->check(CLI::IsMember({"input", "all_reduce", "step", "fit", "start", "memory"}));
    app.add_option("--data_dir,--data-dir", data_dir,
                   "CIFAR-10's binary files for the input (default: generated)");
    app.add_option("--json", json, "File for the figures");
    app.add_flag(kFirstStepProbe, first_step_probe)->group("");
    app.add_option(kMemoryProbe, memory_probe)->group("");
    app.add_flag(kCentralProbe, central_probe)->group("");
    app.add_option(kStepWorker, step_worker)
        ->check(CLI::IsMember({"mirrored", "no_exchange", "multi_worker", "parameter_server", "alone"}))
        ->group("");
    app.add_option(kAllReduceWorker, all_reduce_worker)->group("");
  }
};

void measure(const Flags& flags) {
  if (!flags.json.empty() &&
      !std::filesystem::is_directory(std::filesystem::absolute(flags.json).parent_path())) {
    throw tandem::NotFound(fmt::format("--json {}: there is no such folder", flags.json));
  }
  const auto wanted = [&](const char* part) { return flags.only.empty() || flags.only == part; };
  Report report(this_machine());
  report.print_machine();
  // The input first: a wrong --data_dir then shows at once.
  if (wanted("input")) input_speed(flags.rounds, flags.data_dir, report);
  if (wanted("all_reduce")) all_reduce_speed(flags.rounds, report);
  if (wanted("step")) step_speed(flags.rounds, report);
  if (wanted("fit")) fit_overhead(flags.rounds, report);
  if (wanted("start")) first_step(report);
  if (wanted("memory")) memory(report);
  report.print_bars();
  if (!flags.json.empty()) report.write_json(flags.json);
}

int complain(const char* what, int code) {
  fmt::print(stderr, "bench_one_machine: {}\n", what);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures tandem on one machine", "bench_one_machine");
  Flags flags;
  flags.add_to(app);
  try {
    app.parse(argc, argv);
    spdlog::set_level(spdlog::level::warn);  // what the strategies tell of themselves would cut the tables
    if (flags.first_step_probe) {
      first_step_probe();
    } else if (flags.memory_probe > 0) {
      memory_probe(flags.memory_probe, flags.central_probe);
    } else if (!flags.step_worker.empty()) {
      step_worker(flags.step_worker);
    } else if (!flags.all_reduce_worker.empty()) {
      all_reduce_worker(flags.all_reduce_worker);
    } else {
      measure(flags);
    }
    return 0;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    return complain(error.what(), kWrongInput);
  } catch (const tandem::NotFound& error) {
    return complain(error.what(), kWrongInput);
  } catch (const tandem::DataLoss& error) {
    return complain(error.what(), kWrongInput);
  } catch (const std::exception& error) {
    return complain(error.what(), kFailed);
  }
}
