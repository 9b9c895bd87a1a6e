#include "trace/recorder.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "trace/chrome_trace.h"

namespace tandem::internal {
namespace {

using Json = nlohmann::json;

std::vector<std::string> names_of(const TraceRecording& recording) {
  std::vector<std::string> names;
  for (const auto& thread : recording.threads) {
    for (const TraceEvent& event : thread.events) names.push_back(event.name);
  }
  return names;
}

TEST(TraceRecorderTest, RecordsSpansFromStartToStopAndNoOthers) {
  { const TraceSpan before("before"); }
  const TraceSpan open("begun before");
  ASSERT_TRUE(TraceRecorder::start());
  { const TraceSpan inside("inside", 7); }
  const TraceRecording recording = TraceRecorder::stop();
  { const TraceSpan after("after"); }
  ASSERT_EQ(names_of(recording), std::vector<std::string>{"inside"});
  const TraceEvent& event = recording.threads.front().events.front();
  EXPECT_EQ(event.value, 7);
  EXPECT_GE(event.begin, recording.begin);
  EXPECT_GE(event.length, 0);
  ASSERT_TRUE(TraceRecorder::start());
  EXPECT_TRUE(names_of(TraceRecorder::stop()).empty());
}

TEST(TraceRecorderTest, LeavesARecordingThatIsUnderWayAlone) {
  ASSERT_TRUE(TraceRecorder::start());
  { const TraceSpan span("one"); }
  EXPECT_FALSE(TraceRecorder::start());
  { const TraceSpan span("two"); }
  EXPECT_EQ(names_of(TraceRecorder::stop()), (std::vector<std::string>{"one", "two"}));
}

TEST(TraceRecorderTest, LeavesOutASpanOfTheRecordingBefore) {
  ASSERT_TRUE(TraceRecorder::start());
  {
    const TraceSpan span("of the first");
    EXPECT_TRUE(names_of(TraceRecorder::stop()).empty());
    ASSERT_TRUE(TraceRecorder::start());
  }
  { const TraceSpan span("of the second"); }
  EXPECT_EQ(names_of(TraceRecorder::stop()), std::vector<std::string>{"of the second"});
}

TEST(TraceRecorderTest, TakesWhatThreadsAddWhileItStartsAndStops) {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!done) const TraceSpan span("work");
    });
  }
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(TraceRecorder::start());
    const TraceRecording recording = TraceRecorder::stop();
    for (const auto& thread : recording.threads) {
      for (const TraceEvent& event : thread.events) EXPECT_GE(event.begin, recording.begin);
    }
  }
  done = true;
  for (auto& thread : threads) thread.join();
}

TEST(ChromeTraceTest, IsJsonWithEveryThreadAndEvent) {
  ASSERT_TRUE(TraceRecorder::start());
  { const TraceSpan span("a \"name\" with \xff in it", 3); }
  std::thread other([] {
    pthread_setname_np(pthread_self(), "other");
    const TraceSpan span("there");
  });
  other.join();
  TraceRecorder::add(
      {.kind = TraceEvent::Kind::kCounter, .name = "bytes", .begin = TraceRecorder::now(), .value = 5});
  const std::int64_t now = TraceRecorder::now();
  TraceRecorder::add({.kind = TraceEvent::Kind::kFlowBegin, .name = "f", .begin = now, .value = 9});
  TraceRecorder::add({.kind = TraceEvent::Kind::kFlowEnd, .name = "f", .begin = now, .value = 9});
  const TraceRecording recording = TraceRecorder::stop();
  const Json trace = Json::parse(to_chrome_trace(recording, "worker:1"));

  std::map<std::string, Json> by_phase_and_name;
  for (const Json& event : trace.at("traceEvents")) {
    EXPECT_TRUE(event.at("pid").is_number_integer());
    EXPECT_TRUE(event.at("tid").is_number_integer());
    const std::string phase = event.at("ph");
    EXPECT_EQ(phase != "M", event.contains("ts"));
    const std::string name = phase == "M" ? event.at("args").at("name") : event.at("name");
    by_phase_and_name[phase + " " + name] = event;
  }
  EXPECT_TRUE(by_phase_and_name.contains("M worker:1"));
  EXPECT_TRUE(by_phase_and_name.contains("M other"));
  ASSERT_TRUE(by_phase_and_name.contains("X there"));
  EXPECT_GE(by_phase_and_name.at("X there").at("dur").get<double>(), 0);
  EXPECT_EQ(by_phase_and_name.at("X there").at("tid"), by_phase_and_name.at("M other").at("tid"));
  EXPECT_EQ(by_phase_and_name.at("X a \"name\" with \xef\xbf\xbd in it").at("args").at("step"), 3);
  EXPECT_EQ(by_phase_and_name.at("C bytes").at("args").at("value"), 5);
  EXPECT_EQ(by_phase_and_name.at("s f").at("id"), by_phase_and_name.at("f f").at("id"));
  // Times are since 1970: this is after 2020.
  EXPECT_GT(by_phase_and_name.at("X there").at("ts").get<double>(), 1.5e15);
}

}  // namespace
}  // namespace tandem::internal
