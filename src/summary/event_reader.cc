#include "summary/event_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "summary/event.pb.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::uint64_t kMostEventBytes = std::uint64_t{256} << 20;

// What a wrong value is called in a message: tags can be anything.
class Refusal {
 public:
  Refusal(const std::string& where, std::int64_t index) : where_(where), index_(index) {}

  [[noreturn]] void operator()(const char* what) const {
    throw DataLoss(fmt::format("{}: value {} is {}", where_, index_, what));
  }

 private:
  const std::string& where_;
  std::int64_t index_;
};

// How many elements the shape says there are; nothing if that is no number.
std::optional<std::size_t> elements(const events::TensorShape& shape) {
  std::size_t count = 1;
  for (const auto& dim : shape.dim()) {
    if (dim.size() < 0) return std::nullopt;
    const auto size = static_cast<std::size_t>(dim.size());
    if (size > 0 && count > std::numeric_limits<std::size_t>::max() / size) return std::nullopt;
    count *= size;
  }
  return count;
}

// The numbers of a tensor, from whichever of the two places they are in.
template <typename Number, typename List>
std::vector<Number> numbers(const events::Tensor& tensor, const List& list, const Refusal& refuse) {
  const std::string& content = tensor.tensor_content();
  const std::size_t held =
      content.empty() ? static_cast<std::size_t>(list.size()) : content.size() / sizeof(Number);
  if (elements(tensor.tensor_shape()) != held || content.size() % sizeof(Number) != 0) {
    refuse("a tensor whose shape does not fit its contents");
  }
  if (content.empty()) return {list.begin(), list.end()};
  std::vector<Number> out(held);
  std::memcpy(out.data(), content.data(), content.size());
  return out;
}

float scalar(const events::Tensor& tensor, const Refusal& refuse) {
  if (tensor.tensor_shape().dim_size() != 0) refuse("a scalar with dimensions");
  if (tensor.dtype() == events::Tensor::FLOAT)
    return numbers<float>(tensor, tensor.float_val(), refuse).front();
  if (tensor.dtype() == events::Tensor::DOUBLE) {
    return static_cast<float>(numbers<double>(tensor, tensor.double_val(), refuse).front());
  }
  refuse("a scalar that is no floating-point number");
}

std::vector<HistogramBucket> histogram(const events::Tensor& tensor, const Refusal& refuse) {
  const auto& shape = tensor.tensor_shape();
  if (tensor.dtype() != events::Tensor::DOUBLE || shape.dim_size() != 2 || shape.dim(1).size() != 3) {
    refuse("a histogram that is not of doubles by three");
  }
  const std::vector<double> all = numbers<double>(tensor, tensor.double_val(), refuse);
  std::vector<HistogramBucket> buckets;
  for (std::size_t i = 0; i + 3 <= all.size(); i += 3) buckets.push_back({all[i], all[i + 1], all[i + 2]});
  return buckets;
}

std::vector<std::string> strings(const events::Tensor& tensor, const Refusal& refuse) {
  if (tensor.dtype() != events::Tensor::STRING) refuse("a text or picture that is no string");
  const auto& list = tensor.string_val();
  if (elements(tensor.tensor_shape()) != static_cast<std::size_t>(list.size())) {
    refuse("a tensor whose shape does not fit its contents");
  }
  return {list.begin(), list.end()};
}

std::int64_t length(const std::string& text, const Refusal& refuse) {
  std::int64_t value = 0;
  const auto [stopped, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || stopped != text.data() + text.size() || value < 0) {
    refuse("a picture whose width or height is no number");
  }
  return value;
}

EncodedImages images(const events::Tensor& tensor, const Refusal& refuse) {
  std::vector<std::string> parts = strings(tensor, refuse);
  if (parts.size() < 2) refuse("a picture without width and height");
  EncodedImages out{.width = length(parts[0], refuse), .height = length(parts[1], refuse), .png = {}};
  out.png.assign(std::make_move_iterator(parts.begin() + 2), std::make_move_iterator(parts.end()));
  return out;
}

SummaryValue decode_value(const events::Summary::Value& value, const Refusal& refuse) {
  SummaryValue out{.tag = value.tag(), .value = {}};
  const auto& plugin = value.metadata().plugin_data();
  if (value.has_simple_value()) {
    out.value = value.simple_value();
  } else if (!value.has_tensor()) {
    return out;
  } else if (plugin.plugin_name() == "scalars") {
    out.value = scalar(value.tensor(), refuse);
  } else if (plugin.plugin_name() == "histograms") {
    out.value = histogram(value.tensor(), refuse);
  } else if (plugin.plugin_name() == "images") {
    out.value = images(value.tensor(), refuse);
  } else if (plugin.plugin_name() == "text") {
    out.value = strings(value.tensor(), refuse);
  } else if (plugin.plugin_name() == "hparams") {
    out.value = HParamsContent{plugin.content()};
  }
  return out;
}

}  // namespace

Event decode_event(std::string_view bytes, const std::string& where) {
  events::Event message;
  if (bytes.size() > kMostEventBytes ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw DataLoss(fmt::format("{} is no event", where));
  }
  Event event{.wall_time = message.wall_time(),
              .step = message.step(),
              .file_version = message.file_version(),
              .session_start = message.session_log().status() == events::SessionLog::START,
              .values = {}};
  for (const auto& value : message.summary().value()) {
    event.values.push_back(
        decode_value(value, Refusal(where, static_cast<std::int64_t>(event.values.size()))));
  }
  return event;
}

EventReader::EventReader(const std::string& path)
    : name_(path), records_(path, {.max_record_bytes = kMostEventBytes}) {}

EventReader::EventReader(std::string name, RecordReader::Source source)
    : name_(name), records_(std::move(name), std::move(source), {.max_record_bytes = kMostEventBytes}) {}

std::optional<Event> EventReader::next() {
  const std::uint64_t offset = records_.offset();
  torn_ = false;
  std::optional<std::string> record;
  try {
    record = records_.next();
  } catch (const TornRecord&) {
    torn_ = true;
  }
  if (!record) return std::nullopt;
  return decode_event(*record, fmt::format("the record at offset {} of \"{}\"", offset, name_));
}

}  // namespace tandem::internal
