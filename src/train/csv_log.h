#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/append_file.h"
#include "train/log_values.h"

namespace tandem::internal {

struct CsvLogOptions {
  std::string separator = ",";
  // Go on with a file that is there, under the header it has.
  bool append = false;
  // For a training that goes on: what size() was then. Whole lines up to there stay, what came later is cut.
  std::optional<std::uint64_t> resume_at = {};
};

// The file of Keras's CSVLogger, letter for letter: a line per epoch, under a header with "epoch" and the
// sorted names of the first epoch's logs. If none of those begins with "val_", each gets a column "val_" too,
// for the validation that may come with a later epoch. What an epoch does not have is NA; what is not in the
// header is left out. Lines end as Python's csv module has it, with a carriage return and a line feed.
class CsvLog {
 public:
  // Throws NotFound if the file cannot be written, InvalidArgument for an empty separator.
  explicit CsvLog(const std::string& path, CsvLogOptions options = {});

  // The line is with the system when this returns. If the disk is full that is logged once, and the lines so
  // far are written with a later one.
  void add_epoch(std::int64_t epoch, LogValues logs);

  // Of the file, in bytes.
  std::uint64_t size() const { return file_.size(); }

 private:
  void add_line(const std::vector<std::string>& cells);

  CsvLogOptions options_;
  AppendFile file_;
  bool header_;  // is still to be written
  std::vector<std::string> names_;
  std::string pending_;
  bool warned_ = false;
};

}  // namespace tandem::internal
