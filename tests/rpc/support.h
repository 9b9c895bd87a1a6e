#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/ports.h"
#include "support/errors.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"
#include "tandem/task_server.h"

namespace tandem::testing_support {

// No wait of these tests is longer; a cluster of this machine forms in a tenth of a second.
inline constexpr std::chrono::seconds kPatience{30};

// Workers of this machine, with ports that stay theirs as long as this object lives.
class Workers {
 public:
  explicit Workers(int count, const std::vector<std::string>& other_jobs = {})
      : ports_(internal::ReservedPorts::choose("127.0.0.1", count + static_cast<int>(other_jobs.size()))) {
    std::vector<std::string> workers;
    for (int i = 0; i < count; ++i) workers.push_back(address(i));
    ClusterSpec::Jobs jobs{{"worker", workers}};
    for (const std::string& job : other_jobs) {
      jobs.push_back({job, std::vector<std::string>{address(count + static_cast<int>(jobs.size()) - 1)}});
    }
    cluster = ClusterSpec(std::move(jobs));
  }

  int port(int i) const { return ports_.ports().at(static_cast<std::size_t>(i)); }
  std::string address(int i) const { return fmt::format("127.0.0.1:{}", port(i)); }

  ClusterSpec cluster;

 private:
  internal::ReservedPorts ports_;
};

template <typename Fn>
auto in_thread(Fn fn) {
  return std::async(std::launch::async, std::move(fn));
}

// What the thread returns or throws. A thread that hangs cannot be ended, so the whole test is.
template <typename T>
T result_of(std::future<T> future) {
  if (future.wait_for(kPatience) != std::future_status::ready) {
    std::fputs("a thread of this test hangs\n", stderr);
    std::abort();
  }
  return future.get();
}

// Whether it comes true in time.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds patience = kPatience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

inline std::size_t entries_of(const char* folder) {
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++entries;
  return entries;
}
// Both count what the asking itself takes.
inline std::size_t threads_of_this_process() {
  return entries_of("/proc/self/task");
}
inline std::size_t descriptors_of_this_process() {
  return entries_of("/proc/self/fd");
}

inline ServerOptions with_patience(ServerOptions options = {}) {
  options.join_timeout = kPatience;
  return options;
}

// Two tasks that both wait for all. What each of them says if it may not start; empty if it may. Both are
// there until both have ended, so that each one hears its own reason.
struct Pair {
  std::string first;
  std::string second;
};
inline Pair start_both(const std::function<TaskServer()>& make_first,
                       const std::function<TaskServer()>& make_second) {
  const auto outcome = [](TaskServer& server) -> std::string {
    try {
      server.wait_for_all();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  TaskServer first = make_first();
  TaskServer second = make_second();
  auto said = in_thread([&] { return outcome(first); });
  Pair pair;
  pair.second = outcome(second);
  pair.first = result_of(std::move(said));
  return pair;
}

}  // namespace tandem::testing_support
