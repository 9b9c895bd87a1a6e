// Gives a fuzz target many inputs:
//   fuzz_tf_config --runs 1000000 --seed 7
// Before each run its number is in the file that --state names, so after a crash
//   fuzz_tf_config --seed 7 --first NUMBER --runs 1 --show
// shows the input and crashes again.
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>

#include "base/log.h"
#include "cli/program.h"
#include "fuzz/mutator.h"
#include "fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

struct Flags {
  std::uint64_t runs = 10'000;
  std::uint64_t first = 0;
  std::uint64_t seed = 1;
  double seconds = 0;
  std::string corpus = TANDEM_FUZZ_CORPUS;
  std::string state;
  bool show = false;
};

// The number of the run at hand, in a file of one line.
class State {
 public:
  explicit State(const std::string& path)
      : descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) throw std::runtime_error("cannot write " + path);
  }
  ~State() { close(descriptor_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void set(std::uint64_t seed, std::uint64_t run) const {
    const std::string line = fmt::format("--seed {} --first {:<20} --runs 1\n", seed, run);
    tandem::fuzz::require(
        pwrite(descriptor_, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size()),
        "the state can be written");
  }

 private:
  int descriptor_;
};

// What the library logs about inputs would drown everything else.
void silence_log() {
  tandem::internal::log_info("fuzzing: the log is off from here on");
  spdlog::get("tandem")->set_level(spdlog::level::off);
}

int fuzz(const Flags& flags) {
  const tandem::fuzz::Mutator mutator(flags.corpus);
  const State state(flags.state);
  silence_log();
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::uint64_t done = 0;
  std::uint64_t accepted = 0;
  while (done < flags.runs && (flags.seconds <= 0 || elapsed() < flags.seconds)) {
    const std::uint64_t run = flags.first + done;
    state.set(flags.seed, run);
    const std::string input = mutator.input(flags.seed, run);
    if (flags.show) std::cout << input << std::endl;
    accepted +=
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()) == 0;
    ++done;
  }
  std::cout << fmt::format("{} runs in {:.1f} s, {:.0f} runs/s, {} inputs accepted, seed {}\n", done,
                           elapsed(), static_cast<double>(done) / elapsed(), accepted, flags.seed);
  return tandem::internal::kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Gives a fuzz target many inputs",
               std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1));
  flags.state = app.get_name() + ".last";
  app.add_option("--runs", flags.runs, "How many inputs")->capture_default_str();
  app.add_option("--first", flags.first, "The number of the first one")->capture_default_str();
  app.add_option("--seed", flags.seed, "Another seed gives other inputs")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "Stop after this time too; 0: do not")->capture_default_str();
  app.add_option("--corpus", flags.corpus, "A folder of samples and a file \"dictionary\"")
      ->capture_default_str();
  app.add_option("--state", flags.state, "Where the number of the run at hand is kept")
      ->capture_default_str();
  app.add_flag("--show", flags.show, "Print each input first");
  return tandem::internal::run_program(app, argc, argv, [&] { return fuzz(flags); });
}
