#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "cli/process_guard.h"
#include "cli/signal_inbox.h"

namespace tandem::internal {

struct ChildCommand {
  // The program, looked up in PATH, and its arguments.
  std::vector<std::string> arguments;
  // "NAME=value" each, on top of this process's own variables.
  std::vector<std::string> variables = {};
};

// How a process ended.
struct Ending {
  int exit_code = 0;  // 128 + signal if it was killed
  int signal = 0;     // 0: it was not
  std::chrono::duration<double> lifetime{};

  // "exited with 75 after 3.2 s", "was killed by SIGKILL after 3.2 s"
  std::string to_string() const;
};

// A program in a process group of its own, so that its children can be stopped with it, which dies when this
// process does, however that ends. It reads nothing (/dev/null); what it prints comes through two pipes, to
// be read without waiting.
class ChildProcess {
 public:
  // Both must outlive it. Throws InvalidArgument that names the program if it cannot be run, Error if the
  // system has no room for a process.
  ChildProcess(const ChildCommand& command, const SignalInbox& signals, const ProcessGuard& guard);
  // Kills the whole group, and waits for its leader's end, unless it has been dismissed.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t id() const { return id_; }
  FileDescriptor& out() { return out_; }
  FileDescriptor& err() { return err_; }

  // To the program alone, or to all of its group.
  void send(int signal) const;
  void send_to_group(int signal) const;

  // Without waiting: how the program ended, if it has. Its group may still live.
  std::optional<Ending> ended();

  // After it has ended: kills what is left of its group and lets the system forget it.
  void dismiss();

  // It hangs in the kernel, where no signal reaches it (a dead network drive): leaves it to the system.
  void abandon() { id_ = -1; }

 private:
  const ProcessGuard* guard_;
  std::chrono::steady_clock::time_point started_;
  pid_t id_ = -1;  // -1: dismissed
  FileDescriptor out_;
  FileDescriptor err_;
};

// "SIGTERM"
std::string signal_name(int signal);

}  // namespace tandem::internal
