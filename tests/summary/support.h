#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "summary/event_reader.h"

namespace tandem::internal {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The names of the event files in a folder, in the order in which TensorBoard reads them.
inline std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> paths;
  if (!std::filesystem::is_directory(folder)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

// All events of all files in a folder.
inline std::vector<Event> read_events(const std::string& folder) {
  std::vector<Event> events;
  for (const auto& path : event_files(folder)) {
    EventReader reader(path);
    while (auto event = reader.next()) events.push_back(std::move(*event));
  }
  return events;
}

// The values alone, each with its step.
struct Seen {
  std::int64_t step;
  SummaryValue value;
};
inline std::vector<Seen> read_values(const std::string& folder) {
  std::vector<Seen> seen;
  for (const auto& event : read_events(folder)) {
    for (const auto& value : event.values) seen.push_back({event.step, value});
  }
  return seen;
}

}  // namespace tandem::internal
