#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

namespace tandem::bench {

// What the benchmarks of a disk take.
struct DiskBench {
  std::size_t megabytes = 256;
  int rounds = 7;
  std::string folder = std::filesystem::temp_directory_path().string();
};

// Parses the command line and calls measure() with a folder of its own on the disk, which goes with it. The
// exit code.
inline int run_disk_bench(int argc, char** argv, const char* name, const char* what,
                          const std::function<void(const DiskBench&)>& measure) {
  CLI::App app(what, name);
  DiskBench bench;
  app.add_option("--megabytes", bench.megabytes, "Of values")
      ->check(CLI::Range(12, 1000000))
      ->capture_default_str();
  app.add_option("--rounds", bench.rounds, "Of each measurement")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--folder", bench.folder, "On the disk to measure")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    bench.folder += "/tandem-bench-XXXXXX";
    if (!mkdtemp(bench.folder.data())) throw std::runtime_error("cannot make " + bench.folder);
    struct Remove {
      const std::string& path;
      ~Remove() { std::filesystem::remove_all(path); }
    } const remove{bench.folder};
    measure(bench);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace tandem::bench
