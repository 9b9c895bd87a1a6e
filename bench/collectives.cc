// How fast the tasks of a cluster sum up their gradients: real processes on this machine, engines beside each
// other, and beside what a plain socket, Open MPI and the memory of one process can do.
//
//   bench/collectives                     (builds first; under three minutes on two idle cores)
//   bench/collectives --processes 2 --seconds 10 --json figures.json
//
// All take turns in short rounds, so the ratios hold on a machine that is not quite idle, where GB/s do not.
// A rate is the bytes of the buffer that is summed up over the time until the slowest process has the sum,
// the median over the rounds; a ratio is the median of the ratios within each round. Ends with a list of what
// the figures should come to. A bar that is not met is a measurement, not a failure: the exit code is 0 all
// the same.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "collectives_group.h"
#include "collectives_member.h"
#include "comm/backends.h"
#include "comm/choose_algorithm.h"
#include "report.h"
#include "turns.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kKiB = std::int64_t{1} << 10;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kSmallest = 4 * kKiB;
constexpr std::int64_t kLargest = 64 * kMiB;
constexpr std::int64_t kFasterUpTo = 4 * kMiB;
constexpr double kFaster = 1.5;
constexpr double kNeverSlower = 1.0;
constexpr double kInProcess = 4;
constexpr std::int64_t kInProcessFrom = kMiB;
constexpr std::int64_t kInProcessTo = 16 * kMiB;

struct Flags {
  std::vector<int> processes = {2, 4, 8};
  double seconds = 3;
  std::string json = {};
  MemberFlags member = {};

  void add_to(CLI::App& app) {
    app.add_option("--processes", processes, "Numbers of processes")
        ->delimiter(',')
        ->check(CLI::Range(2, 64));
    app.add_option("--seconds", seconds, "For each size and number of processes, about; more is more exact")
        ->check(CLI::Range(0.1, 1000.0))
        ->capture_default_str();
    app.add_option("--json", json, "File for the figures");
    app.add_option("--member", member.engine)->group("");
    app.add_option("--rank", member.rank)->group("");
    app.add_option("--size", member.size)->group("");
    app.add_option("--orders", member.orders)->group("");
    app.add_option("--ports", member.ports)->delimiter(',')->group("");
  }
};

std::string size_name(std::int64_t bytes) {
  return bytes < kMiB ? fmt::format("{} KiB", bytes / kKiB) : fmt::format("{} MiB", bytes / kMiB);
}

bool can_start_mpi() {
  return has_mpi() && internal::mpi::available() && std::system("mpirun --version > /dev/null 2>&1") == 0;
}

// Something that is measured for one size: who does it, and what.
struct Variant {
  std::string name;
  Group* group;
  Order order;
};

// Of one size and number of processes: bytes of the buffer per second by variant, round by round.
struct Row {
  std::int64_t bytes = 0;
  std::map<std::string, std::vector<double>> rates = {};
  std::map<std::string, double> bytes_sent = {};

  bool has(const std::string& variant) const { return rates.contains(variant); }
  double gigabytes(const std::string& variant) const { return median(rates.at(variant)) / 1e9; }
  double over(const std::string& a, const std::string& b) const {
    return ratio(rates.at(a), rates.at(b)).median;
  }
};

Row measure_row(std::int64_t bytes, std::vector<Variant> variants, double seconds) {
  constexpr double kTurn = 0.015;  // long beside the clock, short beside a disturbance
  constexpr int kFewest = 3;
  constexpr int kMost = 25;
  Row row{.bytes = bytes};
  double round = 0;
  for (Variant& variant : variants) {
    // A single one says little: processes are woken for it, and memory is touched for the first time.
    double one = 0;
    for (int tries = 0; tries < 4; ++tries) {
      one = variant.group->run(variant.order).seconds;
      variant.order.repeats = static_cast<int>(std::clamp(kTurn / one, 1.0, 1000.0));
      if (one > kTurn) break;
    }
    round += std::max(one * variant.order.repeats, kTurn) + 0.01;
  }
  const int rounds = std::clamp(static_cast<int>(seconds / round), kFewest, kMost);
  std::vector<std::function<double()>> turns;
  for (const Variant& variant : variants) {
    turns.push_back([&] {
      const Answer answer = variant.group->run(variant.order);
      row.bytes_sent[variant.name] = answer.bytes_sent;
      return static_cast<double>(bytes) / answer.seconds;
    });
  }
  const auto samples = take_turns<double>(rounds, turns);
  for (std::size_t i = 0; i < variants.size(); ++i) row.rates[variants[i].name] = samples[i];
  return row;
}

class Bench {
 public:
  Bench(int processes, double seconds, bool with_mpi, Report& report)
      : processes_(processes),
        seconds_(seconds),
        by_hand_(processes <= 4),
        report_(report),
        tcp_("tcp", processes, by_hand_ ? static_cast<int>(std::size(kAlgorithms)) : 1),
        gloo_("gloo", processes),
        socket_("socket", 2) {
    if (with_mpi) mpi_ = std::make_unique<Group>("mpi", processes);
    if (processes == 2) in_process_ = std::make_unique<Group>("in process", processes);
  }

  void run() {
    print_head();
    for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
      rows_.push_back(measure_row(bytes, variants(bytes), seconds_));
      print(rows_.back());
      add_to_report(rows_.back());
    }
    if (by_hand_) print_algorithms();
    if (in_process_) print_in_process();
  }

 private:
  // What each member of a ring sends and receives.
  double ring_share() const { return 2.0 * (processes_ - 1) / processes_; }

  std::vector<Variant> variants(std::int64_t bytes) {
    std::vector<Variant> all = {{"tcp", &tcp_, {.bytes = bytes}}, {"gloo", &gloo_, {.bytes = bytes}}};
    if (mpi_) {
      all.push_back({"Open MPI", mpi_.get(), {.work = Work::kMpiAllReduce, .bytes = bytes}});
      all.push_back({"mpi", mpi_.get(), {.bytes = bytes}});
    }
    all.push_back({"socket",
                   &socket_,
                   {.work = Work::kExchange,
                    .bytes = static_cast<std::int64_t>(ring_share() * static_cast<double>(bytes))}});
    for (std::int32_t i = 1; by_hand_ && i < static_cast<std::int32_t>(std::size(kAlgorithms)); ++i) {
      all.push_back({internal::algorithm_name(kAlgorithms[i]), &tcp_, {.communicator = i, .bytes = bytes}});
    }
    if (in_process_ && bytes >= kInProcessFrom && bytes <= kInProcessTo) {
      all.push_back({"in process", in_process_.get(), {.bytes = bytes}});
    }
    return all;
  }

  void print_head() const {
    fmt::print("\nAll-reduce between {} processes: GB/s of the buffer\n", processes_);
    fmt::print("  {:<8} {:>8} {:>8} {:>9} {:>8} {:>8}   {:>8} {:>9} {:>11}   {}\n", "size", "tcp", "gloo",
               "Open MPI", "mpi", "socket", "tcp/gloo", "tcp/O.MPI", "tcp/socket",
               "sent by each, of the buffer");
    std::fflush(stdout);
  }

  void print(const Row& row) const {
    const auto rate = [&](const std::string& variant) {
      return row.has(variant) ? fmt::format("{:.3g}", row.gigabytes(variant)) : "-";
    };
    const auto over = [&](const std::string& other) {
      return row.has(other) ? fmt::format("{:.2f}", row.over("tcp", other)) : "-";
    };
    fmt::print("  {:<8} {:>8} {:>8} {:>9} {:>8} {:>8}   {:>8} {:>9} {:>11}   {:.3f} (a ring: {:.3f})\n",
               size_name(row.bytes), rate("tcp"), rate("gloo"), rate("Open MPI"), rate("mpi"), rate("socket"),
               over("gloo"), over("Open MPI"), over("socket"),
               row.bytes_sent.at("tcp") / static_cast<double>(row.bytes), ring_share());
    std::fflush(stdout);
  }

  void print_algorithms() const {
    fmt::print("\n  tcp by hand, GB/s, * the fastest{:<7}", "");
    for (const auto algorithm : kAlgorithms) fmt::print(" {:>17}", internal::algorithm_name(algorithm));
    fmt::print("   auto is\n");
    for (const Row& row : rows_) {
      const auto rate = [&](AllReduceAlgorithm algorithm) {
        return row.gigabytes(algorithm == AllReduceAlgorithm::kAuto ? "tcp"
                                                                    : internal::algorithm_name(algorithm));
      };
      double best = 0;
      for (const auto algorithm : kAlgorithms) {
        if (algorithm != AllReduceAlgorithm::kAuto) best = std::max(best, rate(algorithm));
      }
      fmt::print("  {:<39}", size_name(row.bytes));
      for (const auto algorithm : kAlgorithms) {
        const bool fastest = algorithm != AllReduceAlgorithm::kAuto && rate(algorithm) == best;
        fmt::print(" {:>16.3g}{}", rate(algorithm), fastest ? "*" : " ");
      }
      fmt::print("   {}\n", internal::algorithm_name(internal::choose_algorithm(
                                static_cast<std::size_t>(row.bytes), processes_, false)));
    }
    std::fflush(stdout);
  }

  void print_in_process() const {
    fmt::print("\n  {:<8} {:>12} {:>8} {:>17}\n", "size", "in process", "gloo", "in process/gloo");
    for (const Row& row : rows_) {
      if (!row.has("in process")) continue;
      fmt::print("  {:<8} {:>12.3g} {:>8.3g} {:>17.2f}\n", size_name(row.bytes), row.gigabytes("in process"),
                 row.gigabytes("gloo"), row.over("in process", "gloo"));
    }
    std::fflush(stdout);
  }

  void add_to_report(const Row& row) {
    const std::string place = fmt::format("{} of {} processes", size_name(row.bytes), processes_);
    for (const auto& [variant, rates] : row.rates) {
      report_.add(fmt::format("{}_{}_{}_bytes_per_second", variant, processes_, row.bytes), median(rates));
    }
    report_.add(fmt::format("tcp_{}_{}_sent_of_buffer", processes_, row.bytes),
                row.bytes_sent.at("tcp") / static_cast<double>(row.bytes));
    // The table is for 8 processes what the bars are for 2 and 4: there, more processes than cores count
    // most.
    if (by_hand_) {
      report_.add({.what = fmt::format("{}: tcp / gloo", place),
                   .value = row.over("tcp", "gloo"),
                   .bar = row.bytes <= kFasterUpTo ? kFaster : kNeverSlower});
    }
    if (row.has("in process")) {
      report_.add({.what = fmt::format("{}: in process / gloo", place),
                   .value = row.over("in process", "gloo"),
                   .bar = kInProcess});
    }
  }

  const int processes_;
  const double seconds_;
  const bool by_hand_;
  Report& report_;
  Group tcp_;
  Group gloo_;
  Group socket_;
  std::unique_ptr<Group> mpi_;
  std::unique_ptr<Group> in_process_;
  std::vector<Row> rows_;
};

void measure(const Flags& flags) {
  Report report(this_machine());
  report.print_machine();
  const bool with_mpi = can_start_mpi();
  if (!with_mpi)
    fmt::print("Without MPI: mpirun is missing (Debian: openmpi-bin), or the build is without it\n");
  for (const int processes : flags.processes) Bench(processes, flags.seconds, with_mpi, report).run();
  report.print_bars();
  if (!flags.json.empty()) report.write_json(flags.json);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app("Measures all-reduces between processes of this machine", "bench_collectives");
  tandem::bench::Flags flags;
  flags.add_to(app);
  CLI11_PARSE(app, argc, argv);
  try {
    if (flags.member.engine.empty()) {
      tandem::bench::measure(flags);
    } else {
      tandem::bench::be_member(flags.member);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_collectives: {}\n", error.what());
    return 1;
  }
}
