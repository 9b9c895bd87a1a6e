#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "summary/event_file.h"

namespace tandem::internal {

struct EventWriterOptions {
  std::chrono::milliseconds flush_interval = std::chrono::seconds(5);
  std::size_t max_queued_bytes = std::size_t{64} << 20;
  // How long the destructor waits for the disk. After that what is left is lost.
  std::chrono::milliseconds close_timeout = std::chrono::seconds(10);
  EventFileOptions file = {};
};

// Puts events into a queue; a thread writes them into an EventFile, at every interval and when half of the
// room in the queue is taken. Thread-safe; never throws because of the disk.
class EventWriter {
 public:
  struct Counts {
    std::uint64_t written = 0;
    std::uint64_t lost = 0;
  };

  EventWriter(const std::string& folder, EventWriterOptions options = {});
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void add(std::string_view event);

  // Waits until the events that were added before, and are not lost, are in the file. False if they are not.
  bool flush(std::chrono::milliseconds timeout);

  Counts counts() const;

 private:
  // Outlives this object if the disk hangs.
  struct Shared;

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace tandem::internal
