#include "summary/event_reader.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/append_file.h"
#include "summary/event.pb.h"
#include "summary/event_encoder.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::TempFolder;

TEST(EventReader, ReadsEveryKind) {
  EventReader reader(TANDEM_TEST_FILES "/summary/golden/events");
  std::vector<Event> events;
  while (auto event = reader.next()) events.push_back(*event);
  EXPECT_FALSE(reader.torn());
  ASSERT_EQ(events.size(), 14u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(events[1].session_start);
  EXPECT_EQ(events[1].step, 100);
  EXPECT_EQ(events[3].wall_time, 1700000000.5);
  EXPECT_EQ(std::get<float>(events[3].values.at(0).value), 0.1F);
  EXPECT_EQ(events[4].step, -1);
  EXPECT_EQ(std::get<float>(events[5].values.at(0).value), 2.5F);
  EXPECT_EQ(std::get<std::vector<HistogramBucket>>(events[6].values.at(0).value).size(), 7u);
  const auto& images = std::get<EncodedImages>(events[9].values.at(0).value);
  EXPECT_EQ(images.width, 2);
  EXPECT_EQ(images.height, 1);
  EXPECT_EQ(images.png, (std::vector<std::string>{"not really", "PNG files"}));
  EXPECT_EQ(std::get<SummaryValue::Text>(events[10].values.at(0).value),
            SummaryValue::Text{"**bold** \xc3\xbc"});
  EXPECT_NE(std::get<HParamsContent>(events[11].values.at(0).value).data.find("learning_rate"),
            std::string::npos);
  EXPECT_EQ(events[11].values.at(0).tag, "_hparams_/session_start_info");
}

TEST(EventReader, FollowsAFileThatGrows) {
  const TempFolder folder;
  AppendFile file(folder.file("a"), Existing::kRefuse);
  EventReader reader(folder.file("a"));
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.torn());
  std::string record;
  append_record(record, encode_scalar({.wall_time = 1, .step = 7}, "loss", 2));
  file.append(record.substr(0, 20));
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.torn());
  file.append(record.substr(20));
  EXPECT_EQ(reader.next()->step, 7);
  EXPECT_FALSE(reader.torn());
}

TEST(EventReader, SaysWhereARecordIsDamagedOrNoEvent) {
  const TempFolder folder;
  std::string bytes;
  append_record(bytes, encode_file_version(1));
  const std::size_t second = bytes.size();
  append_record(bytes, "\xff\xff\xff");
  AppendFile(folder.file("a"), Existing::kRefuse).append(bytes);
  EventReader reader(folder.file("a"));
  EXPECT_TRUE(reader.next());
  EXPECT_EQ(message_of<DataLoss>([&] { reader.next(); }), "the record at offset " + std::to_string(second) +
                                                              " of \"" + folder.file("a") + "\" is no event");
  bytes[5] ^= 1;
  AppendFile(folder.file("b"), Existing::kRefuse).append(bytes);
  EventReader damaged(folder.file("b"));
  EXPECT_THROW(damaged.next(), DataLoss);
}

// An event with one tensor for a plugin.
std::string tensor_event(const char* plugin, events::Tensor::Type type,
                         const std::vector<std::int64_t>& shape, const std::string& content) {
  events::Event event;
  auto* value = event.mutable_summary()->add_value();
  value->set_tag("x");
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name(plugin);
  value->mutable_tensor()->set_dtype(type);
  for (const auto size : shape) value->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(size);
  value->mutable_tensor()->set_tensor_content(content);
  return event.SerializeAsString();
}

TEST(DecodeEvent, RefusesTensorsThatContradictThemselves) {
  const auto refusal = [](const std::string& bytes) {
    return message_of<DataLoss>([&] { decode_event(bytes, "it"); });
  };
  using T = events::Tensor;
  const std::int64_t huge = std::int64_t{1} << 62;
  const std::string misfit = "it: value 0 is a tensor whose shape does not fit its contents";
  EXPECT_EQ(refusal(tensor_event("scalars", T::FLOAT, {}, "abc")), misfit);
  EXPECT_EQ(refusal(tensor_event("scalars", T::FLOAT, {}, "")), misfit);
  EXPECT_EQ(refusal(tensor_event("scalars", T::FLOAT, {}, "abcdabcd")), misfit);
  EXPECT_EQ(refusal(tensor_event("scalars", T::FLOAT, {1}, "abcd")),
            "it: value 0 is a scalar with dimensions");
  EXPECT_EQ(refusal(tensor_event("scalars", T::STRING, {}, "abcd")),
            "it: value 0 is a scalar that is no floating-point number");
  EXPECT_EQ(refusal(tensor_event("histograms", T::DOUBLE, {2, 3}, std::string(24, 'x'))), misfit);
  EXPECT_EQ(refusal(tensor_event("histograms", T::DOUBLE, {huge, 3}, std::string(24, 'x'))), misfit);
  EXPECT_EQ(refusal(tensor_event("histograms", T::DOUBLE, {-1, 3}, std::string(24, 'x'))), misfit);
  EXPECT_EQ(refusal(tensor_event("histograms", T::FLOAT, {1, 3}, std::string(12, 'x'))),
            "it: value 0 is a histogram that is not of doubles by three");
  EXPECT_EQ(refusal(tensor_event("images", T::STRING, {0}, "")),
            "it: value 0 is a picture without width and height");
  EXPECT_EQ(refusal(tensor_event("text", T::FLOAT, {}, "abcd")),
            "it: value 0 is a text or picture that is no string");
  EXPECT_EQ(refusal(tensor_event("text", T::STRING, {}, "abcd")), misfit);
}

TEST(DecodeEvent, ReadsNumbersFromListsToo) {
  events::Event message;
  ASSERT_TRUE(message.ParseFromString(tensor_event("scalars", events::Tensor::DOUBLE, {}, "")));
  message.mutable_summary()->mutable_value(0)->mutable_tensor()->add_double_val(1.5);
  const Event event = decode_event(message.SerializeAsString(), "it");
  EXPECT_EQ(std::get<float>(event.values.at(0).value), 1.5F);
}

TEST(DecodeEvent, PassesOverKindsItDoesNotKnow) {
  const Event event = decode_event(tensor_event("mesh", events::Tensor::FLOAT, {5}, "?"), "it");
  EXPECT_EQ(event.values.at(0).tag, "x");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(event.values.at(0).value));
}

}  // namespace
}  // namespace tandem::internal
