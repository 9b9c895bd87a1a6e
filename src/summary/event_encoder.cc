#include "summary/event_encoder.h"

#include <bit>
#include <cstring>

#include "summary/event.pb.h"

namespace tandem::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie in memory");
static_assert(sizeof(HistogramBucket) == 3 * sizeof(double));

events::Event event_at(EventTime time) {
  events::Event event;
  event.set_wall_time(time.wall_time);
  event.set_step(time.step);
  return event;
}

// One value of an event of its own.
class Value {
 public:
  Value(EventTime time, std::string_view tag)
      : event_(event_at(time)), value_(event_.mutable_summary()->add_value()) {
    value_->set_tag(std::string(tag));
  }

  events::Summary::Value* operator->() { return value_; }

  // A tensor of no dimensions yet.
  events::Tensor* tensor(events::Tensor::Type type, const char* plugin) {
    value_->mutable_metadata()->mutable_plugin_data()->set_plugin_name(plugin);
    events::Tensor* tensor = value_->mutable_tensor();
    tensor->set_dtype(type);
    tensor->mutable_tensor_shape();
    return tensor;
  }

  std::string bytes() const { return event_.SerializeAsString(); }

 private:
  events::Event event_;
  events::Summary::Value* value_;
};

void add_dimension(events::Tensor* tensor, std::size_t size) {
  tensor->mutable_tensor_shape()->add_dim()->set_size(static_cast<std::int64_t>(size));
}

}  // namespace

std::string encode_file_version(double wall_time) {
  events::Event event = event_at({.wall_time = wall_time});
  event.set_file_version("brain.Event:2");
  event.mutable_source_metadata()->set_writer("tandem");
  return event.SerializeAsString();
}

std::string encode_session_start(EventTime time) {
  events::Event event = event_at(time);
  event.mutable_session_log()->set_status(events::SessionLog::START);
  return event.SerializeAsString();
}

std::string encode_scalar(EventTime time, std::string_view tag, float scalar) {
  Value value(time, tag);
  value.tensor(events::Tensor::FLOAT, "scalars")
      ->set_tensor_content(std::string(reinterpret_cast<const char*>(&scalar), sizeof scalar));
  return value.bytes();
}

std::string encode_simple_scalar(EventTime time, std::string_view tag, float scalar) {
  Value value(time, tag);
  value->set_simple_value(scalar);
  return value.bytes();
}

std::string encode_histogram(EventTime time, std::string_view tag,
                             const std::vector<HistogramBucket>& buckets) {
  Value value(time, tag);
  events::Tensor* tensor = value.tensor(events::Tensor::DOUBLE, "histograms");
  add_dimension(tensor, buckets.size());
  add_dimension(tensor, 3);
  tensor->set_tensor_content(
      std::string(reinterpret_cast<const char*>(buckets.data()), buckets.size() * sizeof(HistogramBucket)));
  return value.bytes();
}

std::string encode_images(EventTime time, std::string_view tag, std::int64_t width, std::int64_t height,
                          const std::vector<std::string>& png) {
  Value value(time, tag);
  events::Tensor* tensor = value.tensor(events::Tensor::STRING, "images");
  add_dimension(tensor, 2 + png.size());
  tensor->add_string_val(std::to_string(width));
  tensor->add_string_val(std::to_string(height));
  for (const auto& picture : png) tensor->add_string_val(picture);
  return value.bytes();
}

std::string encode_text(EventTime time, std::string_view tag, std::string_view text) {
  Value value(time, tag);
  value.tensor(events::Tensor::STRING, "text")->add_string_val(std::string(text));
  return value.bytes();
}

std::string encode_hparams(double wall_time, std::string_view tag, std::string_view content) {
  Value value({.wall_time = wall_time}, tag);
  // Everything is in the metadata; there must be a tensor, so it is one without elements.
  add_dimension(value.tensor(events::Tensor::FLOAT, "hparams"), 0);
  value->mutable_metadata()->mutable_plugin_data()->set_content(std::string(content));
  return value.bytes();
}

}  // namespace tandem::internal
