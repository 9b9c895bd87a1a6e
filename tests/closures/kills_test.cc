// Workers that are processes, and are killed, stopped and started again.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <random>
#include <thread>

#include "closures/where.h"
#include "kills/dose.h"
#include "ps/closure_dispatcher.h"
#include "support/errors.h"
#include "support/running_program.h"
#include "support/temp_folder.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

// Three workers, and what a coordinator must know of them.
class Workers {
 public:
  static constexpr int kCount = 3;

  void start(int worker) {
    programs_[worker] = std::make_unique<RunningProgram>(
        std::vector<std::string>{TANDEM_BIN "/closure_task", std::to_string(worker), folder_.path()});
  }
  void start_all() {
    for (int worker = 0; worker < kCount; ++worker) start(worker);
  }
  void kill(int worker) {
    program(worker).send(SIGKILL);
    EXPECT_EQ(program(worker).wait(), 128 + SIGKILL);
  }
  RunningProgram& program(int worker) { return *programs_.at(worker); }

  ClosureDispatcherOptions options() const {
    auto options = dispatch_to(folder_.path(), kCount);
    options.all_workers_timeout = 20s;
    return options;
  }

  const std::string& folder() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  // How often each argument was begun to be computed, by whatever process.
  std::map<std::string, int> begun() const {
    std::ifstream lines(file("begun"));
    std::map<std::string, int> begun;
    for (std::string line; std::getline(lines, line);) ++begun[line];
    return begun;
  }
  void wait_until_begun(const std::string& argument, int times) const {
    for (int tries = 0; tries < 10'000 && begun()[argument] < times; ++tries)
      std::this_thread::sleep_for(2ms);
    ASSERT_EQ(begun()[argument], times);
  }

 private:
  const TempFolder folder_;
  std::map<int, std::unique_ptr<RunningProgram>> programs_;
};

TEST(ClosureKills, EveryClosureHasItsResultOnceHoweverManyWorkersDie) {
  constexpr int kClosures = 2000;
  const int kills = dose("TANDEM_CLOSURE_KILLS", 3);
  Workers workers;
  workers.start_all();
  std::vector<ClosureHandle> handles;
  {
    ClosureDispatcher dispatcher(workers.options());
    for (const char* function : {"square", "echo"}) dispatcher.expect_function(function);
    for (int i = 0; i < kClosures; ++i) handles.push_back(dispatcher.schedule("square", std::to_string(i)));
    std::mt19937 random(std::random_device{}());
    for (int kill = 1; kill <= kills; ++kill) {
      // By what has been done, and then at any moment.
      handles[static_cast<std::size_t>(kill * kClosures / (kills + 2))].wait();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 10'000));
      ASSERT_FALSE(dispatcher.done());
      const int worker = static_cast<int>(random() % Workers::kCount);
      workers.kill(worker);
      workers.start(worker);
    }
    dispatcher.join();
    // All of them serve, also those that came back.
    for (int tries = 0; tries < 10'000 && dispatcher.ready_workers() < Workers::kCount; ++tries) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(dispatcher.ready_workers(), Workers::kCount);
  }
  for (int worker = 0; worker < Workers::kCount; ++worker) {
    EXPECT_EQ(workers.program(worker).wait(), 0) << workers.program(worker).out;
  }
  long sum = 0;
  for (const ClosureHandle& handle : handles) sum += std::stol(handle.wait());
  long expected = 0;
  for (long i = 0; i < kClosures; ++i) expected += i * i;
  EXPECT_EQ(sum, expected);
  const auto begun = workers.begun();
  EXPECT_EQ(begun.size(), static_cast<std::size_t>(kClosures));
  int again = 0;
  for (const auto& [argument, times] : begun) again += times - 1;
  EXPECT_LE(again, kills) << "only what a dead worker had is run again";
  fmt::print("{} kills, {} closures were begun twice\n", kills, again);
}

TEST(ClosureKills, TheClosureOfADeadWorkerIsRunByAnotherOneAndAWorkerMayComeBack) {
  Workers workers;
  workers.start(0);
  ClosureDispatcher dispatcher(workers.options());
  const auto handle = dispatcher.schedule("wait_for_file", workers.file("go"));
  workers.wait_until_begun("waits", 1);
  const auto behind = dispatcher.schedule("echo", "behind");
  workers.kill(0);
  workers.start(1);
  workers.wait_until_begun("waits", 2);
  EXPECT_FALSE(behind.done()) << "what was given back is first";
  workers.start(0);
  EXPECT_EQ(behind.wait(), "behind");
  std::ofstream(workers.file("go")).put('x');
  EXPECT_EQ(handle.wait(), std::to_string(workers.program(1).id()));
  dispatcher.join();
}

TEST(ClosureKills, AWorkerThatStopsAnsweringIsLostAndWhatItSaysLaterIsDropped) {
  Workers workers;
  workers.start(0);
  auto options = workers.options();
  options.worker_timeout = 800ms;
  ClosureDispatcher dispatcher(options);
  const auto handle = dispatcher.schedule("wait_for_file", workers.file("go"));
  workers.wait_until_begun("waits", 1);
  // It answers while it computes, for longer than it may be silent.
  std::this_thread::sleep_for(1200ms);
  EXPECT_EQ(dispatcher.ready_workers(), 1);
  workers.program(0).send(SIGSTOP);
  workers.start(1);
  workers.wait_until_begun("waits", 2);
  std::ofstream(workers.file("go")).put('x');
  EXPECT_EQ(handle.wait(), std::to_string(workers.program(1).id()));
  workers.program(0).send(SIGCONT);
  for (int tries = 0; tries < 10'000 && dispatcher.ready_workers() < 2; ++tries)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(dispatcher.ready_workers(), 2);
  EXPECT_EQ(dispatcher.schedule("echo", "x").wait(), "x");
  EXPECT_EQ(handle.wait(), std::to_string(workers.program(1).id()));
}

TEST(ClosureKills, WhenAllWorkersAreGoneTheClosuresWaitForTheirReturn) {
  Workers workers;
  workers.start_all();
  auto options = workers.options();
  options.all_workers_timeout = 500ms;
  ClosureDispatcher dispatcher(options);
  while (dispatcher.ready_workers() < Workers::kCount) std::this_thread::sleep_for(1ms);
  const auto handle = dispatcher.schedule("wait_for_file", workers.file("go"));
  workers.wait_until_begun("waits", 1);
  for (int worker = 0; worker < Workers::kCount; ++worker) workers.kill(worker);
  const std::string error = message_of<Unavailable>([&] { dispatcher.join(); });
  EXPECT_NE(error.find("worker:0 (Connection refused), worker:1 (Connection refused)"), std::string::npos)
      << error;
  workers.start(2);
  std::ofstream(workers.file("go")).put('x');
  for (int tries = 0; tries < 10'000 && dispatcher.ready_workers() < 1; ++tries)
    std::this_thread::sleep_for(1ms);
  dispatcher.join();
  EXPECT_EQ(handle.wait(), std::to_string(workers.program(2).id()));
}

TEST(ClosureKills, AnErrorInAnotherProcessComesBackWithItsCodeAndTheWorkersName) {
  Workers workers;
  workers.start(2);
  ClosureDispatcher dispatcher(workers.options());
  dispatcher.schedule("echo", "x");
  const auto failing = dispatcher.schedule("refuse", "luck");
  std::vector<ClosureHandle> behind;
  for (int i = 0; i < 100; ++i) {
    try {
      behind.push_back(dispatcher.schedule("echo", ""));
    } catch (const InvalidArgument&) {
      break;  // it was quick
    }
  }
  try {
    dispatcher.join();
  } catch (const InvalidArgument&) {
  }
  EXPECT_EQ(message_of<InvalidArgument>([&] { failing.wait(); }),
            "worker:2: closure 2 (refuse): no such thing as luck");
  EXPECT_TRUE(dispatcher.done());
  EXPECT_EQ(dispatcher.schedule("echo", "again").wait(), "again");
}

TEST(ClosureKills, AWorkerWhoseCoordinatorVanishesWaitsForAnother) {
  Workers workers;
  workers.start(0);
  RunningProgram coordinator({TANDEM_BIN "/closure_task", "coordinator", workers.folder()});
  workers.wait_until_begun("waits", 1);
  coordinator.send(SIGKILL);
  coordinator.wait();
  std::ofstream(workers.file("go")).put('x');
  ClosureDispatcher dispatcher(workers.options());
  EXPECT_EQ(dispatcher.schedule("echo", "x").wait(), "x");
  dispatcher.finish({});
  EXPECT_EQ(workers.program(0).wait(), 0) << workers.program(0).out;
}

}  // namespace
}  // namespace tandem::internal::ps
