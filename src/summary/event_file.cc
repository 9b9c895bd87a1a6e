#include "summary/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/record_file.h"
#include "summary/event_encoder.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

// Ten digits at least, so that names sort by time. The number tells the files of one process apart, and sorts
// those of one second.
std::string new_name(double now) {
  static std::atomic<int> files{0};
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{:04}", static_cast<std::int64_t>(now), host_name(),
                     getpid(), files++);
}

}  // namespace

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventFile::EventFile(std::string folder, EventFileOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {}

void EventFile::open() {
  if (file_ && !file_->broken() && file_->still_there()) return;
  file_.reset();
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  if (failed) throw NotFound(fmt::format("cannot make the folder \"{}\": {}", folder_, failed.message()));
  const std::string path = folder_ + "/" + new_name(options_.now());
  AppendFile file(path, Existing::kRefuse);
  try {
    file.append(first_records());
  } catch (const Error&) {
    unlink(path.c_str());  // or a full disk fills with empty files
    throw;
  }
  purged_ = true;
  file_ = std::move(file);
}

void EventFile::append(std::string_view records) {
  open();
  file_->append(records);
}

std::string EventFile::first_records() const {
  const double now = options_.now();
  std::string records;
  append_record(records, encode_file_version(now));
  if (options_.purge_step && !purged_) {
    // Twice: TensorBoard takes the first start that a run has for its beginning, and only later ones for a
    // restart, which hides what was there.
    const std::string start = encode_session_start({.wall_time = now, .step = *options_.purge_step});
    append_record(records, start);
    append_record(records, start);
  }
  return records;
}

}  // namespace tandem::internal
