#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/ports.h"
#include "support/process.h"
#include "support/running_program.h"
#include "support/temp_folder.h"

namespace tandem::testing_support {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Asks until it is so; false after so many seconds.
template <typename Condition>
bool eventually(Condition&& condition, int seconds = 20) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Runs `tandem ...` without the variables that would say something of their own, and with these.
inline ProcessResult run_tandem(const std::vector<std::string>& arguments,
                                const std::vector<std::string>& variables = {}) {
  std::vector<std::string> command{"/usr/bin/env", "-u", "TF_CONFIG", "-u", "TANDEM_CLUSTER_FILE"};
  command.insert(command.end(), variables.begin(), variables.end());
  command.push_back(std::string(TANDEM_BIN) + "/tandem");
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_process(command, 60);
}

// Ports of 127.0.0.1 for a cluster of workers, and its tasks once they are started.
class Workers {
 public:
  explicit Workers(int count) : ports_(internal::ReservedPorts::choose("127.0.0.1", count)) {
    for (const int port : ports_.ports()) {
      hosts_ += fmt::format("{}127.0.0.1:{}", hosts_.empty() ? "" : ",", port);
    }
    tasks_.resize(static_cast<std::size_t>(count));
  }

  const std::string& hosts() const { return hosts_; }
  int port(int task) const { return ports_.ports()[static_cast<std::size_t>(task)]; }
  RunningProgram& task(int index) { return *tasks_[static_cast<std::size_t>(index)]; }

  void start(int index, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {std::string(TANDEM_BIN) + "/hello_cluster", "--worker_hosts", hosts_,
                               "--task_index", std::to_string(index)});
    tasks_[static_cast<std::size_t>(index)] = std::make_unique<RunningProgram>(more);
  }
  void start_all(const std::vector<std::string>& more = {}) {
    for (int i = 0; i < static_cast<int>(tasks_.size()); ++i) start(i, more);
  }

 private:
  internal::ReservedPorts ports_;
  std::string hosts_;
  std::vector<std::unique_ptr<RunningProgram>> tasks_;
};

}  // namespace tandem::testing_support
