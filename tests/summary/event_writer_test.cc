#include "summary/event_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <regex>
#include <thread>

#include "summary/event_encoder.h"
#include "summary/support.h"
#include "support/file_size_limit.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using namespace std::chrono_literals;
using testing_support::FileSizeLimit;
using testing_support::TempFolder;

// Long enough that nothing is written because of it.
constexpr auto kNever = 1h;
constexpr auto kLong = 20s;

std::string event(std::int64_t step) {
  return encode_scalar({.wall_time = 1, .step = step}, "loss", static_cast<float>(step));
}

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const auto& seen : read_values(folder)) steps.push_back(seen.step);
  return steps;
}

using Steps = std::vector<std::int64_t>;

TEST(EventWriter, NamesItsFileAsTensorFlowDoes) {
  const TempFolder folder;
  {
    EventWriter writer(folder.file("run"), {.file = {.now = [] { return 1700000000.9; }}});
  }
  const auto files = event_files(folder.file("run"));
  ASSERT_EQ(files.size(), 1u);
  const std::regex name(R"(events\.out\.tfevents\.1700000000\..+\.)" + std::to_string(getpid()) + R"(\.\d+)");
  EXPECT_TRUE(std::regex_match(std::filesystem::path(files[0]).filename().string(), name)) << files[0];
  const auto events = read_events(folder.file("run"));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
}

TEST(EventWriter, HasItsFileFromTheBeginning) {
  const TempFolder folder;
  EventWriter writer(folder.path(), {.flush_interval = kNever});
  EXPECT_TRUE(writer.flush(kLong));
  EXPECT_EQ(read_events(folder.path()).size(), 1u);
}

TEST(EventWriter, WritesAtAFlush) {
  const TempFolder folder;
  EventWriter writer(folder.path(), {.flush_interval = kNever});
  for (int step = 0; step < 5; ++step) {
    writer.add(event(step));
    ASSERT_TRUE(writer.flush(kLong));
    EXPECT_EQ(steps_in(folder.path()).size(), static_cast<std::size_t>(step) + 1);
  }
  EXPECT_EQ(writer.counts().written, 5u);
  EXPECT_EQ(writer.counts().lost, 0u);
}

TEST(EventWriter, WritesAfterTheIntervalByItself) {
  const TempFolder folder;
  EventWriter writer(folder.path(), {.flush_interval = 10ms});
  writer.add(event(1));
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (steps_in(folder.path()).empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(steps_in(folder.path()), Steps{1});
}

TEST(EventWriter, WritesWhenTheQueueIsHalfFull) {
  const TempFolder folder;
  EventWriter writer(folder.path(), {.flush_interval = kNever, .max_queued_bytes = 1000});
  ASSERT_TRUE(writer.flush(kLong));
  const std::string one = event(1);
  for (std::size_t bytes = 0; bytes < 600; bytes += one.size()) writer.add(one);
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (steps_in(folder.path()).empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_FALSE(steps_in(folder.path()).empty());
  EXPECT_EQ(writer.counts().lost, 0u);
}

TEST(EventWriter, WritesTheRestWhenItGoes) {
  const TempFolder folder;
  {
    EventWriter writer(folder.path(), {.flush_interval = kNever});
    for (int step = 0; step < 100; ++step) writer.add(event(step));
  }
  EXPECT_EQ(steps_in(folder.path()).size(), 100u);
}

TEST(EventWriter, KeepsEverythingThatManyThreadsAdd) {
  const TempFolder folder;
  {
    EventWriter writer(folder.path(), {.flush_interval = 1ms});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&writer, t] {
        for (int i = 0; i < 500; ++i) {
          writer.add(event(1000 * t + i));
          if (i % 100 == 0) writer.flush(kLong);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  std::map<std::int64_t, std::int64_t> last;  // of each thread: its own events stay in order
  const Steps steps = steps_in(folder.path());
  ASSERT_EQ(steps.size(), 2000u);
  for (const std::int64_t step : steps) {
    const auto [found, first] = last.try_emplace(step / 1000, step);
    if (!first) {
      EXPECT_EQ(step, found->second + 1);
    }
    found->second = step;
  }
}

TEST(EventWriter, TriesAgainWhenTheDiskIsFull) {
  const TempFolder folder;
  EventWriter writer(folder.path(), {.flush_interval = kNever});
  writer.add(event(0));
  ASSERT_TRUE(writer.flush(kLong));
  {
    const FileSizeLimit limit(std::filesystem::file_size(event_files(folder.path())[0]) + 5);
    writer.add(event(1));
    EXPECT_FALSE(writer.flush(kLong));
    writer.add(event(2));
    EXPECT_FALSE(writer.flush(kLong));
    EXPECT_EQ(steps_in(folder.path()), Steps{0});
  }
  EXPECT_TRUE(writer.flush(kLong));
  EXPECT_EQ(steps_in(folder.path()), (Steps{0, 1, 2}));
  EXPECT_EQ(event_files(folder.path()).size(), 1u);
  EXPECT_EQ(writer.counts().written, 3u);
  EXPECT_EQ(writer.counts().lost, 0u);
}

TEST(EventWriter, LeavesNoEmptyFilesOnAFullDisk) {
  const TempFolder folder;
  const FileSizeLimit limit(3);
  EventWriter writer(folder.path(), {.flush_interval = kNever});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(writer.flush(kLong), true);  // nothing was added, nothing is missing
  EXPECT_TRUE(event_files(folder.path()).empty());
}

TEST(EventWriter, CountsWhatIsLostWhenTheQueueIsFull) {
  const TempFolder folder;
  std::ofstream(folder.file("run")) << "no folder";
  std::string one;
  append_record(one, event(1));
  EventWriter writer(folder.file("run"), {.flush_interval = kNever, .max_queued_bytes = 10 * one.size()});
  for (int i = 0; i < 25; ++i) {
    writer.add(event(1));
    EXPECT_FALSE(writer.flush(kLong));
  }
  EXPECT_EQ(writer.counts().lost, 15u);
  EXPECT_EQ(writer.counts().written, 0u);
  std::filesystem::remove(folder / "run");
  EXPECT_TRUE(writer.flush(kLong));
  EXPECT_EQ(writer.counts().written, 10u);
  EXPECT_EQ(steps_in(folder.file("run")).size(), 10u);
}

TEST(EventWriter, CountsWhatIsLeftWhenItGoes) {
  const TempFolder folder;
  std::ofstream(folder.file("run")) << "no folder";
  testing::internal::CaptureStderr();
  {
    EventWriter writer(folder.file("run"), {.flush_interval = 5ms});
    writer.add(event(1));
    writer.add(event(2));
    std::this_thread::sleep_for(30ms);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("2 summaries of \"" + folder.file("run") + "\" were lost"), std::string::npos) << log;
  const std::string warning = "are kept in memory for now, and training goes on: cannot make the folder";
  EXPECT_NE(log.find(warning), std::string::npos) << log;
  EXPECT_EQ(log.find(warning), log.rfind(warning)) << log;
}

TEST(EventWriter, BeginsAnotherFileWhenItsOwnIsRemoved) {
  const TempFolder folder;
  EventWriter writer(folder.file("run"), {.flush_interval = kNever, .file = {.purge_step = 5}});
  writer.add(event(1));
  ASSERT_TRUE(writer.flush(kLong));
  EXPECT_TRUE(read_events(folder.file("run"))[1].session_start);
  std::filesystem::remove_all(folder / "run");
  writer.add(event(2));
  ASSERT_TRUE(writer.flush(kLong));
  const auto events = read_events(folder.file("run"));
  ASSERT_EQ(events.size(), 2u);  // purged once, not for every file
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[1].step, 2);
}

TEST(EventWriter, DoesNotWaitForADiskThatHangs) {
  const TempFolder folder;
  auto answer = std::make_shared<std::promise<double>>();
  const auto answered = answer->get_future().share();
  {
    // The clock is asked between two calls of the file system.
    EventWriter writer(folder.path(),
                       {.close_timeout = 20ms, .file = {.now = [answered] { return answered.get(); }}});
    writer.add(event(1));
    EXPECT_FALSE(writer.flush(20ms));
  }
  EXPECT_TRUE(event_files(folder.path()).empty());
  // The thread that was left behind ends in peace.
  answer->set_value(1700000000);
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (steps_in(folder.path()).empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(steps_in(folder.path()), Steps{1});
}

}  // namespace
}  // namespace tandem::internal
