#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rpc/handshake.h"

namespace tandem::internal {

// What a ps task says of itself, or why it says nothing.
struct PsTold {
  std::map<std::string, std::string> details = {};
  std::string failure = {};
};
using PsTable = std::map<TaskId, PsTold>;

// Asks the ps tasks of a cluster: what each of them holds and how busy it is, nobody else knows. `self` must
// outlive it.
class PsTellers {
 public:
  explicit PsTellers(const Identity& self);
  ~PsTellers();
  PsTellers(const PsTellers&) = delete;

  // All of them, now, a few at a time. A task that does not answer costs some seconds.
  PsTable ask() const;

  // The same again and again, on a thread of its own, from the first latest() on: what was told last.
  PsTable latest();

 private:
  void ask_again();

  const Identity& self_;
  std::vector<TaskId> tasks_;
  std::mutex mutex_;  // of what is below
  std::condition_variable changed_;
  bool stopping_ = false;
  bool known_ = false;
  PsTable latest_;
  std::thread thread_;
};

}  // namespace tandem::internal
