#include "cli/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw Error(ErrorCode::kInternal, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    from = FileDescriptor(ends[0]);
    to = FileDescriptor(ends[1]);
  }
  FileDescriptor from;
  FileDescriptor to;
};

// As execve() wants it; points into the strings.
std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> with_variables(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  const auto name = [](std::string_view variable) { return variable.substr(0, variable.find('=')); };
  for (char** variable = environ; *variable; ++variable) {
    const bool replaced =
        std::any_of(added.begin(), added.end(), [&](const auto& a) { return name(a) == name(*variable); });
    if (!replaced) all.emplace_back(*variable);
  }
  return all;
}

// What happens in the child: it becomes the program, or reports errno. Allocates nothing.
struct Start {
  pid_t parent;
  int in;
  int out;
  int err;
  int failure;
  char* const* arguments;
  char* const* variables;

  [[noreturn]] void run(const SignalInbox& signals, const ProcessGuard& guard) const {
    setpgid(0, 0);
    guard.watch(getpid());
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it died before we could ask to be told
    signals.undo();
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
      execvpe(arguments[0], arguments, variables);
    const int reason = errno;
    (void)!write(failure, &reason, sizeof reason);
    _exit(127);
  }
};

int read_failure(const FileDescriptor& from) {
  int reason = 0;
  ssize_t n = 0;
  do {
    n = read(from.get(), &reason, sizeof reason);
  } while (n < 0 && errno == EINTR);
  return n == sizeof reason ? reason : 0;
}

void wait_for(pid_t child) {
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string Ending::to_string() const {
  return signal == 0 ? fmt::format("exited with {} after {:.1f} s", exit_code, lifetime.count())
                     : fmt::format("was killed by {} after {:.1f} s", signal_name(signal), lifetime.count());
}

ChildProcess::ChildProcess(const ChildCommand& command, const SignalInbox& signals, const ProcessGuard& guard)
    : guard_(&guard), started_(std::chrono::steady_clock::now()) {
  const std::vector<std::string> variables = with_variables(command.variables);
  const auto argument_pointers = pointers(command.arguments);
  const auto variable_pointers = pointers(variables);
  FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing)
    throw Error(ErrorCode::kInternal, fmt::format("cannot open /dev/null: {}", std::strerror(errno)));
  Pipe out;
  Pipe err;
  Pipe failure;  // closed by a successful exec
  const Start start{getpid(),
                    nothing.get(),
                    out.to.get(),
                    err.to.get(),
                    failure.to.get(),
                    argument_pointers.data(),
                    variable_pointers.data()};
  const pid_t child = fork();
  if (child < 0)
    throw Error(ErrorCode::kInternal, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) start.run(signals, guard);

  failure.to.reset();
  if (const int reason = read_failure(failure.from)) {
    guard.forget(child);
    wait_for(child);
    throw InvalidArgument(fmt::format("cannot run \"{}\": {}", command.arguments[0], std::strerror(reason)));
  }
  id_ = child;
  out_ = std::move(out.from);
  err_ = std::move(err.from);
  for (const auto* stream : {&out_, &err_}) fcntl(stream->get(), F_SETFL, O_RDONLY | O_NONBLOCK);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : guard_(other.guard_),
      started_(other.started_),
      id_(std::exchange(other.id_, -1)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)) {}

ChildProcess::~ChildProcess() {
  if (id_ > 0) dismiss();
}

void ChildProcess::send(int signal) const {
  kill(id_, signal);
}

void ChildProcess::send_to_group(int signal) const {
  kill(-id_, signal);
}

std::optional<Ending> ChildProcess::ended() {
  siginfo_t info{};
  // WNOWAIT: its number stays its own until the group is gone too.
  if (waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  const bool exited = info.si_code == CLD_EXITED;
  return Ending{.exit_code = exited ? info.si_status : 128 + info.si_status,
                .signal = exited ? 0 : info.si_status,
                .lifetime = std::chrono::steady_clock::now() - started_};
}

void ChildProcess::dismiss() {
  send_to_group(SIGKILL);
  guard_->forget(id_);
  wait_for(id_);
  id_ = -1;
}

}  // namespace tandem::internal
