#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "summary/event_encoder.h"
#include "summary/event_writer.h"
#include "summary/histogram.h"
#include "summary/hparams.h"
#include "summary/png.h"
#include "tandem/error.h"
#include "tandem/summary.h"

namespace tandem {
namespace {

using namespace internal;

constexpr std::int64_t kMostPixelBytes = std::int64_t{1} << 30;

void check_text(const char* what, const std::string& text) {
  if (!is_utf8(text)) throw InvalidArgument(fmt::format("{} is not UTF-8: \"{}\"", what, to_utf8(text)));
}

void check_name(const char* what, const std::string& name) {
  if (name.empty()) throw InvalidArgument(fmt::format("{} is empty", what));
  check_text(what, name);
}

void check_hparam(const HParam& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    check_text("the value of a hyper-parameter", *text);
}

void check_options(const std::string& folder, const SummaryWriterOptions& options) {
  if (folder.empty()) throw InvalidArgument("the folder of a SummaryWriter is empty");
  if (options.flush_interval < std::chrono::milliseconds(1)) {
    throw InvalidArgument(
        fmt::format("flush_interval is {} ms: expected 1 or more", options.flush_interval.count()));
  }
  if (options.task.find('/') != std::string::npos || options.task == "..") {
    throw InvalidArgument(fmt::format("task is \"{}\": expected a name such as worker:1", options.task));
  }
}

void check_image(const std::string& tag, const ImageView& image, const ImageView& first) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(fmt::format("the picture \"{}\" {}", tag, what));
  };
  if (image.height < 1 || image.width < 1 || !image.pixels) {
    refuse(fmt::format("is {} by {} pixels: expected 1 or more each, and where they are", image.width,
                       image.height));
  }
  if (image.channels < 1 || image.channels > 4) {
    refuse(
        fmt::format("has {} channels: expected 1 to 4, the last dimension of the picture", image.channels));
  }
  // Not their product: that could be more than any number.
  if (image.width > kMostPixelBytes / image.channels ||
      image.height > kMostPixelBytes / (image.width * image.channels)) {
    refuse(fmt::format("is {} by {} pixels: expected 1 GiB of them at most", image.width, image.height));
  }
  if (image.width != first.width || image.height != first.height) {
    refuse(fmt::format("is {} by {} pixels and the first one of the step {} by {}: expected one size",
                       image.width, image.height, first.width, first.height));
  }
}

std::string folder_of_run(const std::string& folder, std::string task) {
  if (task.empty()) return folder;
  std::ranges::replace(task, ':', '_');
  return folder + "/" + task;
}

EventWriterOptions writer_options(const SummaryWriterOptions& options) {
  EventWriterOptions out;
  out.flush_interval = options.flush_interval;
  out.max_queued_bytes = options.max_queued_bytes;
  out.file.purge_step = options.purge_step;
  return out;
}

}  // namespace

class SummaryWriter::Impl {
 public:
  Impl(const std::string& folder, const SummaryWriterOptions& options)
      : folder(folder_of_run(folder, options.task)),
        scalar_form(options.scalar_form),
        events(this->folder, writer_options(options)) {}

  const std::string folder;
  const ScalarForm scalar_form;
  EventWriter events;
};

namespace {

EventTime now_at(std::int64_t step) {
  return {.wall_time = wall_clock(), .step = step};
}

template <typename Number>
std::string histogram_event(const std::string& tag, std::int64_t step, std::span<const Number> values,
                            HistogramOptions options) {
  check_name("the tag of a histogram", tag);
  if (options.buckets < 1) {
    throw InvalidArgument(
        fmt::format("the histogram \"{}\" has {} buckets: expected 1 or more", tag, options.buckets));
  }
  return encode_histogram(now_at(step), tag,
                          make_histogram(values, static_cast<std::size_t>(options.buckets)));
}

}  // namespace

SummaryWriter::SummaryWriter(const std::string& folder, SummaryWriterOptions options) {
  check_options(folder, options);
  impl_ = std::make_shared<Impl>(folder, options);
}

std::string SummaryWriter::folder() const {
  return impl_ ? impl_->folder : "";
}

void SummaryWriter::scalar(const std::string& tag, std::int64_t step, double value) {
  if (!impl_) return;
  check_name("the tag of a scalar", tag);
  const auto encode = impl_->scalar_form == ScalarForm::kTensor ? encode_scalar : encode_simple_scalar;
  impl_->events.add(encode(now_at(step), tag, static_cast<float>(value)));
}

void SummaryWriter::histogram(const std::string& tag, std::int64_t step, std::span<const float> values,
                              HistogramOptions options) {
  if (impl_) impl_->events.add(histogram_event(tag, step, values, options));
}

void SummaryWriter::histogram(const std::string& tag, std::int64_t step, std::span<const double> values,
                              HistogramOptions options) {
  if (impl_) impl_->events.add(histogram_event(tag, step, values, options));
}

void SummaryWriter::image(const std::string& tag, std::int64_t step, const ImageView& picture) {
  image(tag, step, std::span(&picture, 1));
}

void SummaryWriter::image(const std::string& tag, std::int64_t step, std::span<const ImageView> images) {
  if (!impl_) return;
  check_name("the tag of a picture", tag);
  if (images.empty()) return;
  for (const auto& picture : images) check_image(tag, picture, images.front());
  std::vector<std::string> png;
  for (const auto& picture : images) png.push_back(encode_png(picture));
  impl_->events.add(encode_images(now_at(step), tag, images.front().width, images.front().height, png));
}

void SummaryWriter::text(const std::string& tag, std::int64_t step, const std::string& text) {
  if (!impl_) return;
  check_name("the tag of a text", tag);
  impl_->events.add(encode_text(now_at(step), tag, to_utf8(text)));
}

void SummaryWriter::hparams(const HParams& values, TrialOptions options) {
  if (!impl_) return;
  for (const auto& [name, value] : values) {
    check_name("the name of a hyper-parameter", name);
    check_hparam(value);
  }
  check_text("trial_id", options.trial_id);
  const std::string group = options.trial_id.empty() ? group_of(values) : options.trial_id;
  const double now = wall_clock();
  impl_->events.add(encode_hparams(now, kSessionStartTag, encode_session_start_info(values, group, now)));
}

void SummaryWriter::end_hparams(TrialStatus status) {
  if (!impl_) return;
  const double now = wall_clock();
  impl_->events.add(encode_hparams(now, kSessionEndTag, encode_session_end_info(status, now)));
}

void SummaryWriter::hparams_config(const HParamsConfig& config) {
  if (!impl_) return;
  for (const auto& info : config.hparams) {
    check_name("the name of a hyper-parameter", info.name);
    check_text("display_name", info.display_name);
    check_text("description", info.description);
    for (const auto& value : info.values) check_hparam(value);
  }
  for (const auto& metric : config.metrics) {
    check_name("the tag of a metric", metric.tag);
    check_text("the group of a metric", metric.group);
    check_text("display_name", metric.display_name);
  }
  const double now = wall_clock();
  impl_->events.add(encode_hparams(now, kExperimentTag, encode_experiment(config, now)));
}

bool SummaryWriter::flush(std::chrono::milliseconds timeout) {
  return !impl_ || impl_->events.flush(timeout);
}

SummaryWriter::Counts SummaryWriter::counts() const {
  if (!impl_) return {};
  const EventWriter::Counts counts = impl_->events.counts();
  return {.written = counts.written, .lost = counts.lost};
}

namespace summary {

SummaryWriter create_file_writer(const std::string& logdir, SummaryWriterOptions options) {
  return SummaryWriter(logdir, std::move(options));
}

SummaryWriter create_noop_writer() {
  return {};
}

void scalar(SummaryWriter& writer, const std::string& name, double data, At at) {
  writer.scalar(name, at.step, data);
}

void histogram(SummaryWriter& writer, const std::string& name, std::span<const float> data, HistogramAt at) {
  writer.histogram(name, at.step, data, {.buckets = at.buckets});
}

void histogram(SummaryWriter& writer, const std::string& name, std::span<const double> data, HistogramAt at) {
  writer.histogram(name, at.step, data, {.buckets = at.buckets});
}

void image(SummaryWriter& writer, const std::string& name, std::span<const ImageView> data, ImageAt at) {
  writer.image(name, at.step, data.first(std::min(data.size(), at.max_outputs)));
}

void text(SummaryWriter& writer, const std::string& name, const std::string& data, At at) {
  writer.text(name, at.step, data);
}

void flush(SummaryWriter& writer) {
  writer.flush();
}

}  // namespace summary
}  // namespace tandem
