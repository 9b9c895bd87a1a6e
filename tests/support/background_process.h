#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/temp_folder.h"

namespace tandem::testing_support {

// A program that runs beside the test; what it prints, on either stream, goes to a file. Killed at the end.
class BackgroundProcess {
 public:
  // The program by its path. `out`: a descriptor to print to instead.
  explicit BackgroundProcess(const std::vector<std::string>& command, std::optional<int> out = {}) {
    const std::string file = folder_.file("out");
    std::vector<char*> arguments;
    for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    id_ = fork();
    if (id_ < 0) throw std::runtime_error("fork failed");
    if (id_ == 0) {
      const int target = out ? *out : open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      dup2(target, STDOUT_FILENO);
      dup2(target, STDERR_FILENO);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
  }
  ~BackgroundProcess() {
    if (ended_) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  BackgroundProcess(const BackgroundProcess&) = delete;
  BackgroundProcess& operator=(const BackgroundProcess&) = delete;

  void send(int signal) const {
    if (!ended_) kill(id_, signal);
  }

  std::string output() const {
    std::ifstream file(folder_.file("out"), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // What it exited with, 128 + signal if it was killed; throws if it still runs after so many seconds.
  int wait(int seconds = 30) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!ended_) {
      int status = 0;
      if (waitpid(id_, &status, WNOHANG) == id_) {
        ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      } else if (std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error("a process did not end within " + std::to_string(seconds) + " s:\n" +
                                 output());
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return *ended_;
  }

 private:
  TempFolder folder_;
  pid_t id_ = -1;
  std::optional<int> ended_;
};

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

}  // namespace tandem::testing_support
