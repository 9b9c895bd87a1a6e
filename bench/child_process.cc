#include "child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tandem/error.h"

namespace tandem::bench {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr std::chrono::milliseconds kSilence = std::chrono::minutes(2);

Error system_error(const char* what, int code) {
  return Error(ErrorCode::kInternal, fmt::format("{}: {}", what, std::strerror(code)));
}

// Again, if a signal came in between.
template <typename Call>
auto retried(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// A child process and the pipe that is its standard output. Ends it, if it still runs, when destroyed.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    std::array<int, 2> pipe{};
    if (pipe2(pipe.data(), O_CLOEXEC) != 0) throw system_error("pipe2", errno);
    output_ = pipe[0];
    std::vector<char*> argv{const_cast<char*>("bench_one_machine")};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
    const int failed = posix_spawn(&process_, kThisProgram, &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe[1]);
    if (failed != 0) {
      close(output_);
      throw system_error("cannot start this program again", failed);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    close(output_);
    if (ended_) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  // What it wrote since the last call; waits for that. Empty once it has closed its output.
  std::string read() {
    pollfd readable{.fd = output_, .events = POLLIN, .revents = 0};
    const int ready = retried([&] { return poll(&readable, 1, static_cast<int>(kSilence.count())); });
    if (ready < 0) throw system_error("poll", errno);
    if (ready == 0) throw DeadlineExceeded("a benchmark process has been silent for two minutes");
    std::array<char, 256> buffer;
    const auto count = retried([&] { return ::read(output_, buffer.data(), buffer.size()); });
    if (count < 0) throw system_error("read", errno);
    return {buffer.data(), static_cast<std::size_t>(count)};
  }

  // Waits for its end and returns the status as waitpid tells it.
  int wait() {
    int status = 0;
    if (retried([&] { return waitpid(process_, &status, 0); }) < 0) throw system_error("waitpid", errno);
    ended_ = true;
    return status;
  }

 private:
  pid_t process_ = 0;
  int output_ = -1;
  bool ended_ = false;
};

}  // namespace

ChildOutput run_this_program(const std::vector<std::string>& arguments) {
  ChildOutput output;
  const auto start = std::chrono::steady_clock::now();
  Child child(arguments);
  for (std::string part = child.read(); !part.empty(); part = child.read()) {
    if (output.text.empty()) {
      output.seconds_to_first =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    output.text += part;
  }
  if (child.wait() != 0) {
    throw Error(ErrorCode::kInternal,
                fmt::format("this program failed when run again with {}", fmt::join(arguments, " ")));
  }
  return output;
}

}  // namespace tandem::bench
