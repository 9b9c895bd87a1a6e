#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem::bench {

enum class Wanted { kAtLeast, kAbove, kBelow };

// What a figure should come to.
struct Bar {
  std::string what;
  double value = 0;
  Wanted wanted = Wanted::kAtLeast;
  double bar = 0;
  std::string unit = {};
  int digits = 2;  // behind the point

  bool met() const;
};

struct Machine {
  std::string cpu;
  int cores = 0;         // of the machine
  int usable_cores = 0;  // by this process
  std::string libtorch;
  std::string load;  // the load average over the last minute, before the benchmark began
};
Machine this_machine();

// Gathers the figures of a run.
class Report {
 public:
  explicit Report(Machine machine) : machine_(std::move(machine)) {}

  void add(std::string name, double value) { figures_.emplace_back(std::move(name), value); }
  void add(Bar bar) { bars_.push_back(std::move(bar)); }

  void print_machine() const;
  void print_bars() const;
  // Replaces the file. Throws Error if it cannot be written.
  void write_json(const std::string& path) const;

 private:
  Machine machine_;
  std::vector<std::pair<std::string, double>> figures_;
  std::vector<Bar> bars_;
};

}  // namespace tandem::bench
