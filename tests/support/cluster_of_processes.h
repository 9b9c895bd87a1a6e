#pragma once

#include <fmt/format.h>

#include <list>
#include <string>
#include <vector>

#include "base/ports.h"
#include "support/running_program.h"

namespace tandem::testing_support {

inline std::int64_t milliseconds_since_1970() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

// Workers on ports of this machine. Unless another program is named, they only count
// (examples/hello_cluster).
class ClusterOfProcesses {
 public:
  explicit ClusterOfProcesses(int workers, std::vector<std::string> flags = {},
                              std::string program = TANDEM_BIN "/hello_cluster")
      : ports_(internal::ReservedPorts::choose("127.0.0.1", workers)),
        program_(std::move(program)),
        flags_(std::move(flags)),
        tasks_(workers) {
    for (const int port : ports_.ports()) {
      hosts_ += fmt::format("{}127.0.0.1:{}", hosts_.empty() ? "" : ",", port);
    }
  }

  int size() const { return static_cast<int>(tasks_.size()); }
  // `more`: flags of this worker alone.
  void start(int worker, const std::vector<std::string>& more = {}) {
    std::vector<std::string> command{program_, "--worker_hosts", hosts_, "--task_index",
                                     std::to_string(worker)};
    command.insert(command.end(), flags_.begin(), flags_.end());
    command.insert(command.end(), more.begin(), more.end());
    tasks_[static_cast<std::size_t>(worker)] = std::make_unique<RunningProgram>(command);
  }
  void start_all() {
    for (int worker = 0; worker < size(); ++worker) start(worker);
  }
  RunningProgram& operator[](int worker) { return *tasks_[static_cast<std::size_t>(worker)]; }

  // When it was told that all are there.
  std::int64_t started_at(int worker) { return std::stoll((*this)[worker].word_after(" started ")); }

  struct Lost {
    std::string task = {};
    std::string evidence = {};
    std::int64_t at = 0;
  };
  // Whom it names, and when. Waits.
  Lost lost(int worker) {
    RunningProgram& program = (*this)[worker];
    Lost lost{.task = program.word_after(" lost ")};
    lost.evidence = program.word_after(fmt::format(" lost {} ", lost.task));
    lost.at = std::stoll(program.word_after(fmt::format(" lost {} {} ", lost.task, lost.evidence)));
    return lost;
  }

 private:
  internal::ReservedPorts ports_;
  std::string program_;
  std::vector<std::string> flags_;
  std::string hosts_;
  std::vector<std::unique_ptr<RunningProgram>> tasks_;
};

}  // namespace tandem::testing_support
