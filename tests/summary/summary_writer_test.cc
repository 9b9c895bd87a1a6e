#include "tandem/summary.h"

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>

#include "summary/support.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using internal::event_files;
using internal::HistogramBucket;
using internal::read_events;
using internal::read_values;
using internal::SummaryValue;
using testing_support::message_of;
using testing_support::TempFolder;

// What the only value of a folder holds.
template <typename T>
T only_value(const std::string& folder) {
  const auto seen = read_values(folder);
  EXPECT_EQ(seen.size(), 1u);
  return std::get<T>(seen.at(0).value.value);
}

TEST(SummaryWriter, WritesScalars) {
  const TempFolder folder;
  SummaryWriter writer(folder.path());
  writer.scalar("loss", 0, 0.5);
  writer.scalar("loss", 1, 0.25);
  ASSERT_TRUE(writer.flush());
  const auto seen = read_values(folder.path());
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].step, 1);
  EXPECT_EQ(seen[1].value.tag, "loss");
  EXPECT_EQ(std::get<float>(seen[1].value.value), 0.25F);
  EXPECT_EQ(writer.counts().written, 2u);
  EXPECT_NEAR(read_events(folder.path()).back().wall_time, static_cast<double>(std::time(nullptr)), 60);
}

TEST(SummaryWriter, WritesTheOlderFormOfScalarsWhenAsked) {
  const TempFolder folder;
  SummaryWriter newer(folder.file("newer"));
  SummaryWriter older(folder.file("older"), {.scalar_form = ScalarForm::kSimpleValue});
  for (auto* writer : {&newer, &older}) {
    writer->scalar("loss", 3, 1.5);
    writer->flush();
  }
  EXPECT_EQ(only_value<float>(folder.file("older")), 1.5F);
  EXPECT_LT(std::filesystem::file_size(event_files(folder.file("older"))[0]),
            std::filesystem::file_size(event_files(folder.file("newer"))[0]));
}

TEST(SummaryWriter, WritesHistograms) {
  const TempFolder folder;
  SummaryWriter writer(folder.path());
  writer.histogram("weights", 4, std::vector<float>{0, 1, 1, 2}, {.buckets = 2});
  ASSERT_TRUE(writer.flush());
  EXPECT_EQ(only_value<std::vector<HistogramBucket>>(folder.path()),
            (std::vector<HistogramBucket>{{0, 1, 1}, {1, 2, 3}}));
}

TEST(SummaryWriter, HasThirtyBucketsByDefault) {
  const TempFolder folder;
  SummaryWriter writer(folder.path());
  writer.histogram("weights", 4, std::vector<double>{0, 1});
  ASSERT_TRUE(writer.flush());
  EXPECT_EQ(only_value<std::vector<HistogramBucket>>(folder.path()).size(), 30u);
}

TEST(SummaryWriter, WritesPictures) {
  const TempFolder folder;
  SummaryWriter writer(folder.path());
  const std::vector<std::uint8_t> pixels(2 * 3 * 3, 200);
  const ImageView image{.pixels = pixels.data(), .height = 2, .width = 3};
  writer.image("input", 1, std::vector<ImageView>{image, image});
  ASSERT_TRUE(writer.flush());
  const auto images = only_value<internal::EncodedImages>(folder.path());
  EXPECT_EQ(images.width, 3);
  EXPECT_EQ(images.height, 2);
  ASSERT_EQ(images.png.size(), 2u);
  EXPECT_EQ(images.png[0].substr(1, 3), "PNG");
}

TEST(SummaryWriter, WritesTextAndReplacesWhatIsNotUtf8) {
  const TempFolder folder;
  SummaryWriter writer(folder.path());
  writer.text("note", 0, "a\xff");
  ASSERT_TRUE(writer.flush());
  EXPECT_EQ(only_value<SummaryValue::Text>(folder.path()), SummaryValue::Text{"a\xef\xbf\xbd"});
}

TEST(SummaryWriter, WritesHyperParametersAndHowTheTrialEnded) {
  const TempFolder folder;
  SummaryWriter writer(folder.path());
  writer.hparams_config(
      {.hparams = {{.name = "optimizer", .values = {"sgd", "adam"}}}, .metrics = {{.tag = "loss"}}});
  writer.hparams({{"optimizer", "sgd"}, {"batch_size", 128}, {"rate", 0.5}, {"nesterov", false}},
                 {.trial_id = "trial 7"});
  writer.end_hparams(TrialStatus::kFailure);
  ASSERT_TRUE(writer.flush());
  const auto seen = read_values(folder.path());
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].value.tag, "_hparams_/experiment");
  EXPECT_EQ(seen[1].value.tag, "_hparams_/session_start_info");
  EXPECT_NE(std::get<internal::HParamsContent>(seen[1].value.value).data.find("trial 7"), std::string::npos);
  EXPECT_EQ(seen[2].value.tag, "_hparams_/session_end_info");
}

TEST(SummaryWriter, GivesEachTaskARunOfItsOwn) {
  const TempFolder folder;
  SummaryWriter writer(folder.path(), {.task = "worker:1"});
  EXPECT_EQ(writer.folder(), folder.file("worker_1"));
  writer.scalar("loss", 0, 1);
  ASSERT_TRUE(writer.flush());
  EXPECT_EQ(only_value<float>(folder.file("worker_1")), 1.0F);
}

TEST(SummaryWriter, HidesWhatAnEarlierProcessWroteForLaterSteps) {
  const TempFolder folder;
  SummaryWriter writer(folder.path(), {.purge_step = 42});
  ASSERT_TRUE(writer.flush());
  const auto events = read_events(folder.path());
  ASSERT_EQ(events.size(), 3u);  // TensorBoard does not count the first one of a run
  for (const std::size_t i : {1, 2}) {
    EXPECT_TRUE(events[i].session_start);
    EXPECT_EQ(events[i].step, 42);
  }
}

TEST(SummaryWriter, IsAHandleThatCopiesShare) {
  const TempFolder folder;
  {
    SummaryWriter copy;
    {
      SummaryWriter writer(folder.path());
      copy = writer;
    }
    copy.scalar("loss", 0, 1);
  }
  EXPECT_EQ(only_value<float>(folder.path()), 1.0F);
  EXPECT_EQ(event_files(folder.path()).size(), 1u);
}

TEST(SummaryWriter, WritesNothingWithoutAFolder) {
  SummaryWriter writer;
  EXPECT_FALSE(writer);
  writer.scalar("", 0, 1);
  writer.image("input", 0, ImageView{});
  writer.hparams({});
  EXPECT_TRUE(writer.flush());
  EXPECT_EQ(writer.folder(), "");
  EXPECT_EQ(writer.counts().written, 0u);
}

TEST(SummaryWriter, RefusesWhatMakesNoSense) {
  const TempFolder folder;
  EXPECT_THROW(SummaryWriter(""), InvalidArgument);
  EXPECT_EQ(message_of<InvalidArgument>([&] { SummaryWriter(folder.path(), {.task = "../x"}); }),
            "task is \"../x\": expected a name such as worker:1");
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { SummaryWriter(folder.path(), {.flush_interval = std::chrono::milliseconds(0)}); }),
            "flush_interval is 0 ms: expected 1 or more");
  SummaryWriter writer(folder.path());
  EXPECT_EQ(message_of<InvalidArgument>([&] { writer.scalar("", 0, 1); }), "the tag of a scalar is empty");
  EXPECT_EQ(message_of<InvalidArgument>([&] { writer.scalar("a\xff", 0, 1); }),
            "the tag of a scalar is not UTF-8: \"a\xef\xbf\xbd\"");
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { writer.histogram("h", 0, std::vector<float>{1}, {.buckets = 0}); }),
      "the histogram \"h\" has 0 buckets: expected 1 or more");
  const std::uint8_t pixel = 0;
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { writer.image("i", 0, {.pixels = &pixel, .height = 0, .width = 1}); }),
      "the picture \"i\" is 1 by 0 pixels: expected 1 or more each, and where they are");
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { writer.image("i", 0, {.pixels = &pixel, .height = 1, .width = 1, .channels = 5}); }),
            "the picture \"i\" has 5 channels: expected 1 to 4, the last dimension of the picture");
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW(writer.image("i", 0, {.pixels = &pixel, .height = huge, .width = huge}), InvalidArgument);
  EXPECT_THROW(writer.hparams({{"", 1}}), InvalidArgument);
  EXPECT_THROW(writer.hparams({{"a", "\xff"}}), InvalidArgument);
  EXPECT_THROW(writer.hparams_config({.hparams = {{.name = "a", .values = {1, "x"}}}}), InvalidArgument);
  EXPECT_THROW(
      writer.hparams_config({.hparams = {{.name = "a", .values = {1}, .interval = std::pair(0., 1.)}}}),
      InvalidArgument);
}

TEST(SummaryFunctions, HaveTensorFlowsOrderOfArguments) {
  const TempFolder folder;
  SummaryWriter writer = summary::create_file_writer(folder.path());
  summary::scalar(writer, "loss", 0.5, {.step = 3});
  summary::histogram(writer, "weights", std::vector<float>{0, 1}, {.step = 4, .buckets = 5});
  const std::uint8_t pixel = 0;
  summary::image(writer, "input", std::vector<ImageView>(9, {&pixel, 1, 1, 1}),
                 {.step = 5, .max_outputs = 2});
  summary::text(writer, "note", "hello", {.step = 6});
  summary::flush(writer);
  const auto seen = read_values(folder.path());
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(std::get<float>(seen[0].value.value), 0.5F);
  EXPECT_EQ(std::get<std::vector<HistogramBucket>>(seen[1].value.value).size(), 5u);
  EXPECT_EQ(std::get<internal::EncodedImages>(seen[2].value.value).png.size(), 2u);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].step, static_cast<std::int64_t>(i) + 3);
  EXPECT_FALSE(summary::create_noop_writer());
}

}  // namespace
}  // namespace tandem
