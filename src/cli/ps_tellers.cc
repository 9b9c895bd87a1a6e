#include "cli/ps_tellers.h"

#include <algorithm>
#include <chrono>

#include "rpc/observer.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::chrono::milliseconds kPatience{3000};
constexpr std::chrono::milliseconds kPause{500};
constexpr std::size_t kMostAtOnce = 16;

PsTold ask_one(const Identity& self, const TaskId& task) {
  PsTold told;
  try {
    observe(self, task, kPatience, [&](const rpc::Table& table) {
      told.details.insert(table.details().begin(), table.details().end());
      return false;
    });
  } catch (const Error& error) {
    told.failure = error.what();
  }
  return told;
}

}  // namespace

PsTellers::PsTellers(const Identity& self) : self_(self) {
  for (const TaskId& task : self.cluster.tasks()) {
    if (task.type == "ps") tasks_.push_back(task);
  }
}

PsTellers::~PsTellers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

PsTable PsTellers::ask() const {
  PsTable table;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < std::min(tasks_.size(), kMostAtOnce); ++i) {
    threads.emplace_back([&] {
      for (std::size_t mine = next++; mine < tasks_.size(); mine = next++) {
        PsTold told = ask_one(self_, tasks_[mine]);
        const std::lock_guard lock(mutex);
        table[tasks_[mine]] = std::move(told);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return table;
}

PsTable PsTellers::latest() {
  if (tasks_.empty()) return {};
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { ask_again(); });
  changed_.wait_for(lock, kPatience, [&] { return known_; });
  return latest_;
}

void PsTellers::ask_again() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    PsTable table = ask();
    lock.lock();
    latest_ = std::move(table);
    known_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kPause, [&] { return stopping_; });
  }
}

}  // namespace tandem::internal
