#include "report.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/files.h"
#include "tandem/device.h"

namespace tandem::bench {
namespace {

const char* word(Wanted wanted) {
  switch (wanted) {
    case Wanted::kAtLeast:
      return "at least";
    case Wanted::kAbove:
      return "above";
    case Wanted::kBelow:
      return "below";
  }
  return "";
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string load_average() {
  std::string load = "unknown";
  std::ifstream("/proc/loadavg") >> load;
  return load;
}

}  // namespace

bool Bar::met() const {
  switch (wanted) {
    case Wanted::kAtLeast:
      return value >= bar;
    case Wanted::kAbove:
      return value > bar;
    case Wanted::kBelow:
      return value < bar;
  }
  return false;
}

Machine this_machine() {
  return {.cpu = cpu_model(),
          .cores = static_cast<int>(std::thread::hardware_concurrency()),
          .usable_cores = usable_cores(),
          .libtorch = TORCH_VERSION,
          .load = load_average()};
}

void Report::print_machine() const {
  fmt::print("{}, {} usable of {} cores, libtorch {}, load average {}\n", machine_.cpu, machine_.usable_cores,
             machine_.cores, machine_.libtorch, machine_.load);
}

void Report::print_bars() const {
  if (bars_.empty()) return;
  std::size_t width = 0;
  for (const Bar& bar : bars_) width = std::max(width, bar.what.size());
  fmt::print("\nBars\n");
  for (const Bar& bar : bars_) {
    const auto with_unit = [&](double value) {
      return fmt::format("{:.{}f}{}", value, bar.digits, bar.unit);
    };
    fmt::print("  {:<{}}  {:>15}  {:>8} {:<14}  {}\n", bar.what, width, with_unit(bar.value),
               word(bar.wanted), with_unit(bar.bar), bar.met() ? "met" : "NOT met");
  }
}

void Report::write_json(const std::string& path) const {
  nlohmann::ordered_json report;
  report["machine"] = {{"cpu", machine_.cpu},
                       {"cores", machine_.cores},
                       {"usable_cores", machine_.usable_cores},
                       {"libtorch", machine_.libtorch},
                       {"load_average", machine_.load}};
  report["figures"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : figures_) report["figures"][name] = value;
  report["bars"] = nlohmann::ordered_json::array();
  for (const Bar& bar : bars_) {
    report["bars"].push_back({{"what", bar.what},
                              {"value", bar.value},
                              {"wanted", word(bar.wanted)},
                              {"bar", bar.bar},
                              {"unit", bar.unit},
                              {"met", bar.met()}});
  }
  internal::replace_file(path, report.dump(2) + "\n");
}

}  // namespace tandem::bench
