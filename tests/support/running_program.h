#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace tandem::testing_support {

// A program that runs while the test looks at it and sends it signals. It has no descriptors but the standard
// ones, and the signals of a program started at a terminal. What it prints, on either stream, comes in `out`.
class RunningProgram {
 public:
  // `stdout_to`: instead of a pipe that the test reads.
  explicit RunningProgram(const std::vector<std::string>& command, int stdout_to = -1) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    read_end_ = internal::FileDescriptor(ends[0]);
    const internal::FileDescriptor write_end(ends[1]);
    std::vector<char*> arguments;
    for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    id_ = fork();
    if (id_ < 0) throw std::runtime_error("fork failed");
    if (id_ == 0) {
      for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_DFL);
      dup2(stdout_to >= 0 ? stdout_to : write_end.get(), STDOUT_FILENO);
      dup2(stdout_to >= 0 ? stdout_to : write_end.get(), STDERR_FILENO);
      close_range(3, ~0U, 0);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
  }
  ~RunningProgram() {
    if (id_ < 0) return;
    ::kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t id() const { return id_; }
  void send(int signal) const { ::kill(id_, signal); }
  // It will find that no one reads.
  void stop_reading() { read_end_.reset(); }

  // Until it has printed `text` that many times. Throws if that takes longer than `seconds`.
  void wait_for(const std::string& text, int times = 1, int seconds = 20) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (count(text) < times) {
      if (!read_some(deadline)) throw std::runtime_error("did not print \"" + text + "\" but:\n" + out);
    }
  }

  // The word that follows the first `text`, waiting for both.
  std::string word_after(const std::string& text, int seconds = 20) {
    wait_for(text, 1, seconds);
    const auto start = out.find(text) + text.size();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (out.find_first_of(" \n", start) == std::string::npos && read_some(deadline)) {
    }
    return out.substr(start, out.find_first_of(" \n", start) - start);
  }

  // Its exit code, 128 + signal if it was killed, after everything that it printed has been read.
  int wait(int seconds = 30) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (read_some(deadline)) {
    }
    while (true) {
      if (const auto exit_code = ended()) return *exit_code;
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("did not end, and printed:\n" + out);
      usleep(2000);
    }
  }

  // The same without waiting or reading, if it has ended.
  std::optional<int> ended() {
    int status = 0;
    if (waitpid(id_, &status, WNOHANG) != id_) return std::nullopt;
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  int count(const std::string& text) const {
    int found = 0;
    for (auto at = out.find(text); at != std::string::npos; at = out.find(text, at + text.size())) ++found;
    return found;
  }

  std::string out;

 private:
  // False at the end of the stream and at the deadline.
  bool read_some(std::chrono::steady_clock::time_point deadline) {
    if (!read_end_) return false;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{read_end_.get(), POLLIN, 0};
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return false;
    std::array<char, 65536> block{};
    const ssize_t n = read(read_end_.get(), block.data(), block.size());
    if (n <= 0) return false;
    out.append(block.data(), static_cast<std::size_t>(n));
    return true;
  }

  pid_t id_ = -1;
  internal::FileDescriptor read_end_;
};

// Makes this process the parent of every descendant whose own parent dies, so that none can hide.
inline void adopt_orphans() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

// Whether this process gets rid of all its descendants, waiting for the dying, within `seconds`. After
// adopt_orphans() one that lives on cannot have been left elsewhere.
inline bool no_descendant_left(int seconds = 10) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < deadline) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended < 0 && errno == ECHILD) return true;
    if (ended == 0) usleep(2000);
  }
  return false;
}

}  // namespace tandem::testing_support
