#include "train/csv_log.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
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

// What cell() made into a line.
std::vector<std::string> cells_of(const std::string& line, const std::string& separator) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '"') {
      const bool doubled = quoted && at + 1 < line.size() && line[at + 1] == '"';
      if (doubled) {
        cells.back() += line[++at];
      } else {
        quoted = !quoted;
      }
    } else if (!quoted && line.compare(at, separator.size(), separator) == 0) {
      cells.emplace_back();
      at += separator.size() - 1;
    } else {
      cells.back() += line[at];
    }
  }
  return cells;
}

// The columns that a file has, after "epoch". None: it is empty, or not one of these.
std::vector<std::string> columns_of(const std::string& path, const std::string& separator) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line) || file.eof()) return {};
  if (line.ends_with('\r')) line.pop_back();
  std::vector<std::string> cells = cells_of(line, separator);
  if (cells.front() != "epoch") return {};
  cells.erase(cells.begin());
  return cells;
}

void cut(const std::string& path, std::uint64_t size) {
  std::ifstream file(path, std::ios::binary);
  const std::string contents{std::istreambuf_iterator<char>(file), {}};
  if (contents.size() < size) {
    log_warning(
        "csv log: \"{}\" has {} bytes, {} less than when the training stopped that goes on here: "
        "lines are missing",
        path, contents.size(), size - contents.size());
  }
  const std::size_t whole = contents.substr(0, size).rfind('\n') + 1;  // 0 where there is no line
  std::error_code ignored;  // what cannot be cut cannot be opened for writing either, which is told
  if (whole < contents.size()) std::filesystem::resize_file(path, whole, ignored);
}

AppendFile open_log(const std::string& path, const CsvLogOptions& options) {
  if (options.resume_at) cut(path, *options.resume_at);
  return AppendFile(path, options.append || options.resume_at ? Existing::kKeep : Existing::kTruncate);
}

CsvLogOptions checked(CsvLogOptions options) {
  if (options.separator.empty())
    throw InvalidArgument("csv log: the separator is empty: expected a character");
  return options;
}

}  // namespace

CsvLog::CsvLog(const std::string& path, CsvLogOptions options)
    : options_(checked(std::move(options))),
      file_(open_log(path, options_)),
      header_(file_.size() == 0),
      names_(columns_of(path, options_.separator)) {}

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
