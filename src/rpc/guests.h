#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "rpc/incoming_link.h"

namespace tandem::internal {

// The streams from others: who has come in, and how many still stand at the door. From any thread.
class Guests {
 public:
  // A stranger so far. If too many are, the one that has been for longest must go.
  void opened(const std::shared_ptr<IncomingLink>& link);

  // Refuses a second process of a task whose first one is alive.
  std::optional<rpc::Refusal> admit(const IncomingLink& link);
  void heard(const IncomingLink& link);
  // Whether that was the last link of the task's process.
  bool closed(const IncomingLink& link);

  // Those who take too long to say who they are.
  void drop_slow();
  std::vector<std::shared_ptr<IncomingLink>> observers() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Present {
    Incarnation incarnation;
    Clock::time_point heard;
    int links;
  };

  template <typename Predicate>
  std::vector<std::shared_ptr<IncomingLink>> those(Predicate predicate) const;
  // With the lock held: the process of the link's task that is here, if it is the link's.
  std::map<TaskId, Present>::iterator present(const IncomingLink& link);

  mutable std::mutex mutex_;
  std::set<std::shared_ptr<IncomingLink>> links_;
  std::map<TaskId, Present> present_;
};

}  // namespace tandem::internal
