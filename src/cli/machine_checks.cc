#include "cli/machine_checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::internal {

using Level = Finding::Level;

Finding check_proxies(const Environment& environment) {
  std::vector<std::string> set;
  for (const char* name : {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy"}) {
    if (environment(name)) set.emplace_back(name);
  }
  if (set.empty()) return {Level::kOk, "proxies", "none set"};
  // Their values may hold passwords.
  return {Level::kOk, "proxies",
          fmt::format("{} {} set, and ignored: tasks connect to each other directly", fmt::join(set, ", "),
                      set.size() == 1 ? "is" : "are")};
}

Finding check_cores(int cores, int tasks_here) {
  if (tasks_here <= 1) return {Level::kOk, "cores", fmt::format("{} usable", cores)};
  if (tasks_here > cores) {
    return {
        Level::kWarning, "cores",
        fmt::format("{} usable for {} tasks on this machine: they will wait for each other; start fewer, or "
                    "spread them over machines",
                    cores, tasks_here)};
  }
  return {Level::kOk, "cores",
          fmt::format("{} usable, {} tasks on this machine: {} for the replicas of each", cores, tasks_here,
                      cores / tasks_here)};
}

Finding check_open_files(std::size_t limit, std::size_t tasks) {
  // A link each way with every other task, some for gradients, and what a program has open by itself.
  const std::size_t needed = 256 + 8 * tasks;
  if (limit >= needed) return {Level::kOk, "open files", fmt::format("up to {}", limit)};
  return {Level::kWarning, "open files",
          fmt::format("up to {} only, and {} tasks may need {}: `ulimit -n {}` before the start", limit,
                      tasks, needed, std::max<std::size_t>(4096, needed))};
}

}  // namespace tandem::internal
