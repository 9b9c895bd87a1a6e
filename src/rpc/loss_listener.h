#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "tandem/task_server.h"

namespace tandem::internal {

// Whom to tell that the run has lost a task. From any thread.
class LossListener {
 public:
  using Listener = std::function<void(const LostTask&)>;

  // Takes the place of the one before, which is not being called when this returns and never will be; so it
  // waits for a call that is under way, except from within that call. If a task is lost already, the new one
  // is called at once.
  void set(Listener listener);

  // Calls the listener; the first time only.
  void tell(const LostTask& lost);

 private:
  void call(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable called_;
  Listener listener_;
  std::optional<LostTask> lost_;
  std::optional<std::thread::id> caller_;  // of a call that is under way
};

}  // namespace tandem::internal
