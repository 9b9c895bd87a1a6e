#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/ports.h"
#include "support/background_process.h"
#include "support/process.h"

namespace tandem::testing_support {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
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
  BackgroundProcess& task(int index) { return *tasks_[static_cast<std::size_t>(index)]; }

  void start(int index, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {std::string(TANDEM_BIN) + "/hello_cluster", "--worker_hosts", hosts_,
                               "--task_index", std::to_string(index)});
    tasks_[static_cast<std::size_t>(index)] = std::make_unique<BackgroundProcess>(more);
  }
  void start_all(const std::vector<std::string>& more = {}) {
    for (int i = 0; i < static_cast<int>(tasks_.size()); ++i) start(i, more);
  }
  ::testing::AssertionResult says(int index, const std::string& text) {
    if (eventually([&] { return has(task(index).output(), text); })) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "worker:" << index << " says:\n" << task(index).output();
  }

 private:
  internal::ReservedPorts ports_;
  std::string hosts_;
  std::vector<std::unique_ptr<BackgroundProcess>> tasks_;
};

}  // namespace tandem::testing_support
