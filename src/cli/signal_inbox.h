#pragma once

#include <signal.h>

#include <optional>

#include "base/file_descriptor.h"

namespace tandem::internal {

// The signals of a program that supervises others, as something to poll(): SIGCHLD, and those that a user or
// a scheduler sends to stop it or to ask something of it. SIGPIPE is ignored. For a program with one thread;
// its end puts everything back.
//
// What was ignored when the program started (nohup, a shell's background job) stays ignored.
class SignalInbox {
 public:
  SignalInbox();
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int descriptor() const { return descriptor_.get(); }

  struct Received {
    int signal;
    pid_t sender;  // of SIGCHLD: the first child that ended since the last one was received
  };
  // The next one that came, without waiting.
  std::optional<Received> next();

  // In a child, before it becomes another program: signals work there as they did here at first.
  void undo() const;

 private:
  FileDescriptor descriptor_;
  sigset_t mask_before_;
  struct sigaction pipe_before_;
  struct sigaction child_before_;
};

}  // namespace tandem::internal
