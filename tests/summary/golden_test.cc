// Byte for byte what TensorBoard's and TensorFlow's own messages are.
#include <gtest/gtest.h>

#include <limits>

#include "base/record_file.h"
#include "summary/event_encoder.h"
#include "summary/event_writer.h"
#include "summary/hparams.h"
#include "summary/support.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::TempFolder;

constexpr double kWallTime = 1700000000.5;

std::vector<std::string> records_of(const std::string& path) {
  RecordReader reader(path);
  std::vector<std::string> records;
  while (auto record = reader.next()) records.push_back(*record);
  return records;
}

// What tests/python/make_golden_events.py writes, through tandem.
void write_golden(const std::string& folder) {
  EventWriter writer(folder, {.file = {.purge_step = 100, .now = [] { return kWallTime; }}});
  const auto at = [](std::int64_t step) { return EventTime{kWallTime, step}; };
  writer.add(encode_scalar(at(0), "loss", 0.1F));
  writer.add(encode_scalar(at(-1), "loss", std::numeric_limits<float>::infinity()));
  writer.add(encode_simple_scalar(at(std::int64_t{1} << 40), "loss", 2.5F));
  std::vector<double> values;
  for (int i = 0; i < 101; ++i) values.push_back(((i * 37) % 101) / 7.0 - 3.0);
  writer.add(encode_histogram(at(3), "weights", make_histogram(values, 7)));
  writer.add(encode_histogram(at(4), "same", make_histogram(std::vector<float>{2, 2}, 3)));
  writer.add(encode_histogram(at(5), "none", make_histogram(std::vector<float>{}, 2)));
  writer.add(encode_images(at(6), "digits", 2, 1, {"not really", "PNG files"}));
  writer.add(encode_text(at(7), "note", "**bold** \xc3\xbc"));
  const HParams hparams{
      {"optimizer", "sgd"}, {"batch_size", 128}, {"learning_rate", 1e-5}, {"nesterov", true}};
  writer.add(encode_hparams(kWallTime, kSessionStartTag,
                            encode_session_start_info(hparams, group_of(hparams), kWallTime)));
  writer.add(
      encode_hparams(kWallTime, kSessionEndTag, encode_session_end_info(TrialStatus::kSuccess, kWallTime)));
  const HParamsConfig config{
      .hparams = {{.name = "optimizer", .description = "which", .values = {"adam", "sgd"}},
                  {.name = "learning_rate", .display_name = "rate", .interval = std::pair(0.0, 1.0)},
                  {.name = "nesterov", .values = {false, true}},
                  {.name = "free"}},
      .metrics = {{.tag = "epoch_loss", .group = "validation", .display_name = "loss"}, {.tag = "accuracy"}}};
  writer.add(encode_hparams(kWallTime, kExperimentTag, encode_experiment(config, kWallTime)));
}

TEST(GoldenEvents, AreTensorBoardsOwnBytes) {
  const TempFolder folder;
  write_golden(folder.path());
  ASSERT_EQ(event_files(folder.path()).size(), 1u);
  const auto written = records_of(event_files(folder.path()).front());
  const auto golden = records_of(TANDEM_TEST_FILES "/summary/golden/events");
  ASSERT_EQ(written.size(), golden.size());
  for (std::size_t i = 0; i < golden.size(); ++i) EXPECT_EQ(written[i], golden[i]) << "event " << i;
  EXPECT_EQ(read_file(event_files(folder.path()).front()),
            read_file(TANDEM_TEST_FILES "/summary/golden/events"));
}

// The file that TensorFlow 2 wrote: its scalars, and the same bytes for them.
TEST(GoldenEvents, OfTensorFlowAreReadAndWrittenAlike) {
  const std::string path = TANDEM_TEST_FILES "/oracles/events/events.out.tfevents.1700000000.host.v2";
  const auto records = records_of(path);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(decode_event(records[0], "first").file_version, "brain.Event:2");
  for (int step = 0; step < 3; ++step) {
    const Event event = decode_event(records[static_cast<std::size_t>(step) + 1], "record");
    EXPECT_EQ(event.step, step);
    EXPECT_GT(event.wall_time, 1.7e9);
    ASSERT_EQ(event.values.size(), 1u);
    EXPECT_EQ(event.values[0].tag, "loss");
    const float loss = std::get<float>(event.values[0].value);
    EXPECT_EQ(loss, 1.0F / static_cast<float>(step + 1));
    EXPECT_EQ(encode_scalar({event.wall_time, event.step}, "loss", loss),
              records[static_cast<std::size_t>(step) + 1]);
  }
}

}  // namespace
}  // namespace tandem::internal
