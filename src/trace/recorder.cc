#include "trace/recorder.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

namespace tandem::internal {
namespace {

// Of each thread: about 100 MB. A step of a ResNet-50 has some thousands.
constexpr std::size_t kMostEvents = 1'000'000;

// A thread's part of the recording. Its own thread adds, the one that stops takes away: they hardly ever
// meet.
struct ThreadLog {
  std::mutex mutex;
  TraceRecording::Thread thread;
  std::int64_t dropped = 0;
};

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadLog>> logs;  // of every thread that ever added, until it has ended
  std::int64_t begin = 0;
};

// Never destroyed: threads of others may still end their spans while the process ends.
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

std::shared_ptr<ThreadLog> make_log() {
  auto log = std::make_shared<ThreadLog>();
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  log->thread.id = syscall(SYS_gettid);
  log->thread.name = name.data();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.logs.push_back(log);
  return log;
}

}  // namespace

std::atomic<bool> TraceRecorder::recording_{false};

std::int64_t TraceRecorder::now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

bool TraceRecorder::start() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (recording_) return false;
  all.begin = now();
  recording_ = true;
  return true;
}

TraceRecording TraceRecorder::stop() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  recording_ = false;
  TraceRecording recording{.begin = all.begin};
  const auto wall = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  recording.since_epoch = wall - now();
  for (const auto& log : all.logs) {
    const std::lock_guard own(log->mutex);
    std::vector<TraceEvent> events = std::exchange(log->thread.events, {});
    // A span that began in the recording before this one, and has only now ended.
    std::erase_if(events, [&](const TraceEvent& event) { return event.begin < all.begin; });
    if (!events.empty()) recording.threads.push_back({log->thread.id, log->thread.name, std::move(events)});
    recording.dropped += std::exchange(log->dropped, 0);
  }
  // Those that only this list holds belong to threads that have ended.
  std::erase_if(all.logs, [](const auto& log) { return log.use_count() == 1; });
  return recording;
}

void TraceRecorder::add(TraceEvent event) {
  thread_local const std::shared_ptr<ThreadLog> log = make_log();
  const std::lock_guard lock(log->mutex);
  // Under the lock: what is added after stop() has been here would be in the next recording.
  if (!recording()) return;
  if (log->thread.events.size() >= kMostEvents) {
    ++log->dropped;
    return;
  }
  log->thread.events.push_back(std::move(event));
}

void TraceSpan::end() const {
  TraceRecorder::add({.kind = TraceEvent::Kind::kSpan,
                      .name = name_,
                      .begin = begin_,
                      .length = TraceRecorder::now() - begin_,
                      .value = step_});
}

}  // namespace tandem::internal
