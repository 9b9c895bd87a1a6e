#include "cli/signal_inbox.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tandem/error.h"

namespace tandem::internal {

SignalInbox::SignalInbox() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&wanted, signal);
  }
  sigprocmask(SIG_BLOCK, &wanted, &mask_before_);

  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &pipe_before_);
  // A parent may have left SIGCHLD ignored, and then no child could be waited for.
  action.sa_handler = SIG_DFL;
  action.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &action, &child_before_);

  descriptor_ = FileDescriptor(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_) {
    const int reason = errno;
    undo();
    throw Error(ErrorCode::kInternal, fmt::format("signalfd: {}", std::strerror(reason)));
  }
}

SignalInbox::~SignalInbox() {
  while (next()) {
  }
  undo();
}

std::optional<SignalInbox::Received> SignalInbox::next() {
  signalfd_siginfo info{};
  if (read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return Received{static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid)};
}

void SignalInbox::undo() const {
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigaction(SIGCHLD, &child_before_, nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

}  // namespace tandem::internal
