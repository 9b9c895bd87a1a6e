#include "train/progress_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem::internal {
namespace {

constexpr std::int64_t kWidth = 30;

// " 35/938", as wide as "938/938".
std::string count(const Progress& progress) {
  const std::string total = std::to_string(progress.total);
  return fmt::format("{:>{}}/{}", progress.steps, total.size(), total);
}

// "===>......", whose arrow head goes when the end is reached.
std::string bar(const Progress& progress) {
  const std::int64_t done =
      progress.total > 0 ? std::min(kWidth, kWidth * progress.steps / progress.total) : std::int64_t{0};
  std::string text(static_cast<std::size_t>(done), '=');
  if (done > 0 && progress.steps < progress.total) text.back() = '>';
  text.resize(kWidth, '.');
  return text;
}

}  // namespace

std::string format_eta(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (seconds > 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
  if (seconds > 60) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string format_duration(double seconds, const std::string& unit) {
  if (seconds >= 1 || seconds == 0) return fmt::format("{:.0f}s/{}", seconds, unit);
  if (seconds >= 1e-3) return fmt::format("{:.0f}ms/{}", seconds * 1e3, unit);
  return fmt::format("{:.0f}us/{}", seconds * 1e6, unit);
}

std::string format_logs(const Logs& logs) {
  std::string text;
  for (const auto& [name, value] : logs) {
    text += std::abs(value) > 1e-3 ? fmt::format(" - {}: {:.4f}", name, value)
                                   : fmt::format(" - {}: {:.4e}", name, value);
  }
  return text;
}

std::string bar_line(const Progress& progress, const Logs& logs) {
  const bool known = progress.total >= 0;
  const std::string place = known ? fmt::format("{} [{}]", count(progress), bar(progress))
                                  : fmt::format("{:7}/Unknown", progress.steps);
  const std::string time =
      known && !progress.finished
          ? "ETA: " + format_eta(progress.seconds_per_step * static_cast<double>(std::max<std::int64_t>(
                                                                 progress.total - progress.steps, 0)))
          : fmt::format("{:.0f}s {}", progress.seconds, format_duration(progress.seconds_per_step, "step"));
  return fmt::format("{} - {}{}", place, time, format_logs(logs));
}

std::string epoch_line(const Progress& progress, const Logs& logs) {
  return fmt::format("{} - {:.0f}s{} - {} - {}", count(progress), progress.seconds, format_logs(logs),
                     format_duration(progress.seconds, "epoch"),
                     format_duration(progress.seconds_per_step, "step"));
}

std::string cut_to(std::string line, std::size_t most) {
  if (line.size() <= most) return line;
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(line[i]) & 0xC0) == 0x80; };
  while (most > 0 && continues(most)) --most;
  line.resize(most);
  return line;
}

}  // namespace tandem::internal
