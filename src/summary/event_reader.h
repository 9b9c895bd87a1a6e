#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/record_file.h"
#include "summary/histogram.h"

namespace tandem::internal {

struct EncodedImages {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::string> png;
};
struct HParamsContent {
  std::string data;  // a message of hparams.proto
};

// One value under one tag. std::monostate: a kind that is not read here.
struct SummaryValue {
  using Text = std::vector<std::string>;

  std::string tag;
  std::variant<std::monostate, float, std::vector<HistogramBucket>, EncodedImages, Text, HParamsContent>
      value;
};

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;    // of the first event of a file
  bool session_start = false;  // hides what earlier files have for this step and later ones
  std::vector<SummaryValue> values;
};

// Reads one message of an event file. Throws DataLoss, naming `where`, if it is none, or if a value of a kind
// that is read here is not as its plugin writes it.
Event decode_event(std::string_view bytes, const std::string& where);

// Reads an event file from its beginning.
class EventReader {
 public:
  // Throws NotFound if there is no such file.
  explicit EventReader(const std::string& path);
  // Anything that has records; `name` is what messages call it.
  EventReader(std::string name, RecordReader::Source source);

  // The next event, or nothing where there is none yet: the next call finds it once it has been written.
  // Throws DataLoss for what is damaged.
  std::optional<Event> next();

  // Whether the file ends in the middle of a record, as it does after its writer was killed.
  bool torn() const { return torn_; }

 private:
  std::string name_;
  RecordReader records_;
  bool torn_ = false;
};

}  // namespace tandem::internal
