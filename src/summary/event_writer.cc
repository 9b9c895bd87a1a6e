#include "summary/event_writer.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/record_file.h"

namespace tandem::internal {

struct EventWriter::Shared {
  Shared(std::string folder_, EventWriterOptions options_)
      : folder(std::move(folder_)), options(std::move(options_)), file(folder, options.file) {}

  const std::string folder;
  const EventWriterOptions options;

  std::mutex mutex;
  std::condition_variable wake;  // the thread
  std::condition_variable done;  // with a round of writing
  std::string queue;             // records; what is being written has left it
  std::uint64_t queued_events = 0;
  std::size_t writing_bytes = 0;
  std::uint64_t accepted = 0;      // events that got into the queue
  std::uint64_t rounds_asked = 0;  // by flush(): each asks for one that begins after it
  std::uint64_t rounds_done = 0;
  bool stopping = false;
  bool stopped = false;
  Counts counts;

  // Of the thread alone:
  EventFile file;
  bool warned = false;

  void run();
  bool write(const std::string& records);
};

// Keeps what could not be written in front of what comes, and tries again in the next round.
void EventWriter::Shared::run() {
  std::unique_lock lock(mutex);
  for (bool last = false; !last;) {
    last = stopping;
    const std::uint64_t round = rounds_asked;
    std::string records = std::exchange(queue, {});
    const std::uint64_t events = std::exchange(queued_events, 0);
    writing_bytes = records.size();
    lock.unlock();
    const bool written = write(records);
    lock.lock();
    writing_bytes = 0;
    if (written) {
      counts.written += events;
    } else {
      queue.insert(0, records);
      queued_events += events;
    }
    rounds_done = round;
    done.notify_all();
    wake.wait_for(lock, options.flush_interval, [&] {
      return last || stopping || rounds_asked > round ||
             (written && queue.size() > options.max_queued_bytes / 2);
    });
  }
  counts.lost += std::exchange(queued_events, 0);
  stopped = true;
  done.notify_all();
}

bool EventWriter::Shared::write(const std::string& records) {
  try {
    records.empty() ? file.open() : file.append(records);
    return true;
  } catch (const std::exception& error) {
    if (!std::exchange(warned, true)) {
      log_warning("summaries of \"{}\" are kept in memory for now, and training goes on: {}", folder,
                  error.what());
    }
    return false;
  }
}

EventWriter::EventWriter(const std::string& folder, EventWriterOptions options)
    : shared_(std::make_shared<Shared>(folder, std::move(options))),
      thread_([shared = shared_] { shared->run(); }) {}

EventWriter::~EventWriter() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->wake.notify_all();
  const bool stopped =
      shared_->done.wait_for(lock, shared_->options.close_timeout, [this] { return shared_->stopped; });
  const std::uint64_t lost = shared_->counts.lost;
  lock.unlock();
  if (stopped) {
    thread_.join();
    if (lost > 0) log_warning("{} summaries of \"{}\" were lost", lost, shared_->folder);
  } else {
    thread_.detach();
    log_warning("the disk with \"{}\" does not answer: the last summaries are lost", shared_->folder);
  }
}

void EventWriter::add(std::string_view event) {
  std::string record;
  append_record(record, event);
  const std::lock_guard lock(shared_->mutex);
  const std::size_t held = shared_->queue.size() + shared_->writing_bytes;
  if (held + record.size() > shared_->options.max_queued_bytes) {
    ++shared_->counts.lost;
    return;
  }
  shared_->queue += record;
  ++shared_->queued_events;
  ++shared_->accepted;
  if (shared_->queue.size() > shared_->options.max_queued_bytes / 2) shared_->wake.notify_all();
}

bool EventWriter::flush(std::chrono::milliseconds timeout) {
  std::unique_lock lock(shared_->mutex);
  const std::uint64_t wanted = shared_->accepted;
  const std::uint64_t round = ++shared_->rounds_asked;
  shared_->wake.notify_all();
  shared_->done.wait_for(lock, timeout, [&] { return shared_->rounds_done >= round; });
  return shared_->rounds_done >= round && shared_->counts.written >= wanted;
}

EventWriter::Counts EventWriter::counts() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->counts;
}

}  // namespace tandem::internal
