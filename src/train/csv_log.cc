#include "train/csv_log.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "tandem/error.h"
#include "train/python_float.h"

namespace tandem::internal {
namespace {

std::vector<std::string> columns(LogValues logs) {
  std::vector<std::string> names;
  for (const auto& [name, value] : logs) names.push_back(name);
  std::ranges::sort(names);
  const bool validated =
      std::ranges::any_of(names, [](const auto& name) { return name.starts_with("val_"); });
  if (!validated) {
    for (std::size_t i = 0, n = names.size(); i < n; ++i) names.push_back("val_" + names[i]);
  }
  return names;
}

// In quotes if it must be, as csv.QUOTE_MINIMAL does it.
std::string cell(const std::string& text, const std::string& separator) {
  if (text.find(separator) == std::string::npos && text.find_first_of("\"\r\n") == std::string::npos)
    return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

CsvLogOptions checked(CsvLogOptions options) {
  if (options.separator.empty())
    throw InvalidArgument("csv log: the separator is empty: expected a character");
  return options;
}

}  // namespace

CsvLog::CsvLog(const std::string& path, CsvLogOptions options)
    : options_(checked(std::move(options))),
      file_(path, options_.append ? Existing::kKeep : Existing::kTruncate),
      header_(file_.size() == 0) {}

void CsvLog::add_epoch(std::int64_t epoch, LogValues logs) {
  if (names_.empty()) names_ = columns(logs);
  if (std::exchange(header_, false)) {
    std::vector<std::string> cells{"epoch"};
    cells.insert(cells.end(), names_.begin(), names_.end());
    add_line(cells);
  }
  std::vector<std::string> cells{std::to_string(epoch)};
  for (const auto& name : names_) {
    const auto found = std::ranges::find(logs, name, &std::pair<std::string, double>::first);
    cells.push_back(found == logs.end() ? "NA" : python_float(found->second));
  }
  add_line(cells);
  try {
    file_.append(pending_);
    pending_.clear();
  } catch (const Error& error) {
    if (!std::exchange(warned_, true)) log_warning("csv log: training goes on: {}", error.what());
  }
}

void CsvLog::add_line(const std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) pending_ += options_.separator;
    pending_ += cell(cells[i], options_.separator);
  }
  pending_ += "\r\n";
}

}  // namespace tandem::internal
