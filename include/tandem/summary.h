#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tandem {

// A picture in memory that somebody else owns: rows from the top, each of `width` pixels of `channels` bytes,
// and nothing between them.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  std::int64_t height = 0;
  std::int64_t width = 0;
  // 1: grey, 2: grey and opacity, 3: red, green, blue, 4: those and opacity.
  std::int64_t channels = 3;
};

// Hyper-parameters by name, e.g. {{"optimizer", "sgd"}, {"batch_size", 128}, {"learning_rate", 0.1}}.
using HParam = std::variant<bool, std::int64_t, double, std::string>;
using HParams = std::map<std::string, HParam>;

struct TrialOptions {
  // Runs of one trial are shown as one row. Empty: a digest of the values, so that runs with equal ones are.
  std::string trial_id = {};
};

enum class TrialStatus { kSuccess, kFailure };

// What the HPARAMS tab shows of an experiment whose trials are in folders below.
struct HParamInfo {
  std::string name = {};
  // Empty: the name.
  std::string display_name = {};
  // Markdown.
  std::string description = {};
  // What it may be: one of these, or a number between the two. At most one of them.
  std::vector<HParam> values = {};
  std::optional<std::pair<double, double>> interval = {};
};
struct MetricInfo {
  // Of a scalar, e.g. "epoch_loss".
  std::string tag = {};
  // The folder below that of the trial in which it is, e.g. "validation". Empty: that of the trial itself.
  std::string group = {};
  // Empty: the tag.
  std::string display_name = {};
};
struct HParamsConfig {
  std::vector<HParamInfo> hparams = {};
  std::vector<MetricInfo> metrics = {};
};

struct HistogramOptions {
  // Of equal width, between the smallest and the greatest value.
  int buckets = 30;
};

// How scalars are written. TensorBoard reads both.
enum class ScalarForm {
  kTensor,       // as TensorFlow 2 does
  kSimpleValue,  // as TensorFlow 1 and PyTorch do, for readers that know no other form; a third shorter
};

struct SummaryWriterOptions {
  // Of several tasks that write into one folder each gets a run of its own in it: "worker:1" writes into
  // "<folder>/worker_1". Empty: into the folder itself.
  std::string task = {};

  // What is written is in the file after this time at the latest: what a killed process can lose.
  std::chrono::milliseconds flush_interval = std::chrono::seconds(5);

  // While the disk takes nothing, so much is kept to be written later. What comes beyond is lost, and
  // counted.
  std::size_t max_queued_bytes = std::size_t{64} << 20;

  // For a training that goes on from a checkpoint: what was written into this folder for steps from here on,
  // by a process that died since, is no longer shown.
  std::optional<std::int64_t> purge_step = {};

  ScalarForm scalar_form = ScalarForm::kTensor;
};

// Writes what TensorBoard shows, into a file of its own in a folder:
//
//   tandem::SummaryWriter writer("logs/run1");
//   writer.scalar("loss", step, loss);
//   // tensorboard --logdir logs
//
// A value: a shared handle. The last one that goes writes what is left, for which it waits up to 10 seconds.
// Calls may come from any thread. They only put what they got into memory; a thread of the writer does the
// rest.
//
// Files never stop a training: if the disk is full or gone, that is logged once, tried again at every flush,
// and what cannot be kept until then is counted (lost()). What is thrown is InvalidArgument, for a tag that
// is empty or not UTF-8, and for values that make no sense.
class SummaryWriter {
 public:
  struct Counts {
    std::uint64_t written = 0;  // values that are in the file
    std::uint64_t lost = 0;     // values that never will be
  };

  // Writes nothing: for the tasks that should not.
  SummaryWriter() = default;

  // Makes the folder if there is none. Throws InvalidArgument for an empty name.
  explicit SummaryWriter(const std::string& folder, SummaryWriterOptions options = {});

  // Whether anything is written.
  explicit operator bool() const { return impl_ != nullptr; }
  // Where: the run's folder, with the task's part. Empty for the writer that writes nothing.
  std::string folder() const;

  // One point of a curve.
  void scalar(const std::string& tag, std::int64_t step, double value);
  // The step comes first.
  template <std::floating_point Step>
  void scalar(const std::string& tag, Step step, double value) = delete;

  // How the values are spread. Those that are infinite or no numbers are left out.
  void histogram(const std::string& tag, std::int64_t step, std::span<const float> values,
                 HistogramOptions options = {});
  void histogram(const std::string& tag, std::int64_t step, std::span<const double> values,
                 HistogramOptions options = {});

  // One picture, or several of one size side by side. Compressed on the calling thread, as PNG.
  void image(const std::string& tag, std::int64_t step, const ImageView& image);
  void image(const std::string& tag, std::int64_t step, std::span<const ImageView> images);

  // Markdown. Bytes that are not UTF-8 are replaced.
  void text(const std::string& tag, std::int64_t step, const std::string& text);

  // The hyper-parameters of the trial whose folder this is, once, before it starts; and how it ended. Without
  // the second the HPARAMS tab shows it as running.
  void hparams(const HParams& values, TrialOptions options = {});
  void end_hparams(TrialStatus status);
  // For the folder above those of the trials; without it TensorBoard shows the hyper-parameters and scalars
  // that it finds.
  void hparams_config(const HParamsConfig& config);

  // Waits until what was written before is in the file, for `timeout` at most. False if it is not there then.
  // (What is lost is in counts().)
  bool flush(std::chrono::milliseconds timeout = std::chrono::seconds(10));

  Counts counts() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// TensorFlow's names, and its order of arguments, with the writer in front in place of `as_default()`:
//
//   auto writer = tandem::summary::create_file_writer("logs/run1");
//   tandem::summary::scalar(writer, "loss", loss, {.step = step});
namespace summary {

struct At {
  std::int64_t step = 0;
};
struct HistogramAt {
  std::int64_t step = 0;
  int buckets = 30;
};
struct ImageAt {
  std::int64_t step = 0;
  // Of several pictures, the first ones.
  std::size_t max_outputs = 3;
};

SummaryWriter create_file_writer(const std::string& logdir, SummaryWriterOptions options = {});
SummaryWriter create_noop_writer();

void scalar(SummaryWriter& writer, const std::string& name, double data, At at);
void histogram(SummaryWriter& writer, const std::string& name, std::span<const float> data, HistogramAt at);
void histogram(SummaryWriter& writer, const std::string& name, std::span<const double> data, HistogramAt at);
void image(SummaryWriter& writer, const std::string& name, std::span<const ImageView> data, ImageAt at);
void text(SummaryWriter& writer, const std::string& name, const std::string& data, At at);
void flush(SummaryWriter& writer);

}  // namespace summary
}  // namespace tandem
