#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/append_file.h"

namespace tandem::internal {

// Seconds since 1970.
double wall_clock();

struct EventFileOptions {
  std::optional<std::int64_t> purge_step = {};
  std::function<double()> now = wall_clock;
};

// The event file of a run in its folder, <folder>/events.out.tfevents.<seconds>.<host>.<pid>.<n>, with the
// events that begin it. Made by the first append(); made anew, under the next name, when it was removed or
// can no longer be used. Not thread-safe.
class EventFile {
 public:
  EventFile(std::string folder, EventFileOptions options);

  // Makes file and folder, if they are not there yet. Throws NotFound with the system's reason.
  void open();

  // Whole records (append_record), all or none. Throws as open() and AppendFile::append do; then it can be
  // tried again.
  void append(std::string_view records);

 private:
  std::string first_records() const;

  std::string folder_;
  EventFileOptions options_;
  bool purged_ = false;
  std::optional<AppendFile> file_;
};

}  // namespace tandem::internal
