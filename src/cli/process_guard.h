#pragma once

#include <sys/types.h>

#include "base/file_descriptor.h"

namespace tandem::internal {

// A small process that outlives this one by a moment, to kill the process groups it was told of: also when
// this process is killed, nothing that it started is left behind. (The kernel's parent-death signal reaches
// children only, not theirs: a shell's, say.)
class ProcessGuard {
 public:
  // Forks: before any thread is started. Throws Error if the system has no room for a process.
  ProcessGuard();
  // Waits for the guard's end, which comes at once; what it still knows of is killed.
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  // Safe after fork(): a child calls it for itself before it becomes another program.
  void watch(pid_t group) const;
  // Before the group's leader is waited for; afterwards its number may mean another group.
  void forget(pid_t group) const;

 private:
  void tell(pid_t message) const;

  pid_t guard_ = -1;
  FileDescriptor messages_;
};

}  // namespace tandem::internal
