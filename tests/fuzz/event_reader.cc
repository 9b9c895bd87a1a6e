// Any bytes as a message of an event file: it is refused with one line, or each value of a kind that tandem
// writes is the same after it was written and read again.
#include "summary/event_reader.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "fuzz/require.h"
#include "summary/event_encoder.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

// As tandem would write this value; empty for kinds that it does not.
struct Encode {
  EventTime time;
  const std::string& tag;

  std::string operator()(std::monostate) const { return {}; }
  std::string operator()(float scalar) const { return encode_scalar(time, tag, scalar); }
  std::string operator()(const std::vector<HistogramBucket>& buckets) const {
    return encode_histogram(time, tag, buckets);
  }
  std::string operator()(const EncodedImages& images) const {
    return encode_images(time, tag, images.width, images.height, images.png);
  }
  std::string operator()(const SummaryValue::Text& text) const {
    return text.size() == 1 ? encode_text(time, tag, text[0]) : std::string();
  }
  std::string operator()(const HParamsContent& content) const {
    return encode_hparams(time.wall_time, tag, content.data);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Event event;
  try {
    event = decode_event({reinterpret_cast<const char*>(data), size}, "the record");
  } catch (const DataLoss& error) {
    const std::string line = error.what();
    require(line.starts_with("the record"), "a refusal names the record");
    require(line.find('\n') == std::string::npos && line.size() < 200, "a refusal is one short line");
    return -1;
  }
  for (const auto& value : event.values) {
    const EventTime time{event.wall_time, event.step};
    const std::string bytes = std::visit(Encode{time, value.tag}, value.value);
    if (bytes.empty()) continue;
    const Event again = decode_event(bytes, "the record");
    require(again.values.size() == 1 && again.values[0].tag == value.tag, "its tag is the same");
    require(again.values[0].value.index() == value.value.index(), "its kind is the same");
    // By its bytes: what is no number is not equal to itself.
    require(std::visit(Encode{time, value.tag}, again.values[0].value) == bytes, "its value is the same");
  }
  return 0;
}
