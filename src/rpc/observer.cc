#include "rpc/observer.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "rpc/outgoing_link.h"
#include "tandem/error.h"

namespace tandem::internal {

void observe(const Identity& self, const TaskId& task, std::chrono::milliseconds patience,
             const std::function<bool(const rpc::Table&)>& show) {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<rpc::Table> tables;
  std::optional<std::string> end;
  bool refused = false;
  OutgoingLink link(self, task,
                    {.welcomed = [] {},
                     .table =
                         [&](const rpc::Table& table) {
                           const std::lock_guard lock(mutex);
                           tables.push_back(table);
                           changed.notify_all();
                         },
                     .ended =
                         [&](const std::optional<rpc::Refusal>& refusal, const std::string& reason) {
                           const std::lock_guard lock(mutex);
                           end = reason;
                           refused = refusal.has_value();
                           changed.notify_all();
                         }});
  link.start();
  std::string failure;
  std::unique_lock lock(mutex);
  while (failure.empty()) {
    if (!changed.wait_for(lock, patience, [&] { return end || !tables.empty(); })) {
      failure = fmt::format("it says nothing for {} ms", patience.count());
    } else if (!tables.empty()) {
      const rpc::Table table = std::move(tables.front());
      tables.pop_front();
      lock.unlock();
      const bool more = show(table);
      lock.lock();
      if (!more) break;
    } else {
      failure = *end;
    }
  }
  link.cancel();
  changed.wait(lock, [&] { return end.has_value(); });  // gRPC always ends a cancelled stream
  if (failure.empty()) return;
  const std::string message =
      fmt::format("{} ({}): {}", task.name(), self.cluster.task_address(task), failure);
  if (refused) throw InvalidArgument(message);
  throw Unavailable(message);
}

}  // namespace tandem::internal
