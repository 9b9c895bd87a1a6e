#include "cli/process_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

// A message is a group's number: to watch it, or negative to forget it. The end of the stream means that
// whoever could send more is gone.
[[noreturn]] void guard(int messages) {
  prctl(PR_SET_NAME, "tandem-guard");
  // What ends the launcher must not end its guard first: neither a key at the terminal nor a signal to all.
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // It must not hold open what others wait for the end of.
  if (dup2(messages, STDIN_FILENO) < 0) _exit(1);
  close_range(STDOUT_FILENO, ~0U, 0);

  std::set<pid_t> groups;
  pid_t message = 0;
  while (true) {
    const ssize_t n = read(STDIN_FILENO, &message, sizeof message);
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof message) break;
    if (message > 0) {
      groups.insert(message);
    } else {
      groups.erase(-message);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

ProcessGuard::ProcessGuard() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(ErrorCode::kInternal, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  FileDescriptor messages(ends[0]);
  messages_ = FileDescriptor(ends[1]);
  guard_ = fork();
  if (guard_ < 0)
    throw Error(ErrorCode::kInternal, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (guard_ == 0) guard(messages.get());
}

ProcessGuard::~ProcessGuard() {
  messages_.reset();
  while (waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ProcessGuard::watch(pid_t group) const {
  tell(group);
}

void ProcessGuard::forget(pid_t group) const {
  tell(-group);
}

void ProcessGuard::tell(pid_t message) const {
  // So few bytes are written whole. If someone has killed the guard, there is nothing to be done about it.
  while (write(messages_.get(), &message, sizeof message) < 0 && errno == EINTR) {
  }
}

}  // namespace tandem::internal
