#include "tandem/monitored_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/file_descriptor.h"
#include "base/ports.h"
#include "loops/support.h"
#include "strategy/tasks_in_one_process.h"
#include "summary/event_reader.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "tandem/supervisor.h"
#include "train/second_or_step_timer.h"

namespace tandem {
namespace {

using testing_support::line_data;
using testing_support::line_model;
using testing_support::message_of;
using testing_support::mirrored;
using testing_support::TempFolder;

// Everything that is called, in order.
class Recorder final : public SessionRunHook {
 public:
  Recorder(std::vector<std::string>& calls, std::string name) : calls_(calls), name_(std::move(name)) {}
  void begin(Model&) override { note("begin"); }
  void after_create_session(Model& model) override { note("create" + std::to_string(model.global_step())); }
  void before_run(SessionRunContext&) override { note("before"); }
  void after_run(SessionRunContext&, const SessionRunValues& values) override {
    note("after" + std::to_string(values.global_step));
  }
  void end(Model&) override { note("end"); }

 private:
  void note(const std::string& what) { calls_.push_back(name_ + "." + what); }
  std::vector<std::string>& calls_;
  std::string name_;
};

struct Training {
  explicit Training(int replicas = 1, std::int64_t rows = 64)
      : strategy(mirrored(replicas)),
        model(line_model(strategy)),
        batches(strategy.distribute(line_data(rows).batch(8).repeat())) {}

  double step() { return model.train_step(batches.next()); }

  Strategy strategy;
  Model model;
  DistributedDataset batches;
};

TEST(SecondOrStepTimerTest, FiresAtOnceAndThenEverySoManyStepsOrSeconds) {
  internal::SecondOrStepTimer steps("t", {}, 3);
  std::vector<int> fired;
  for (int step = 1; step < 10; ++step) {
    if (!steps.should_trigger_for_step(step, 0)) continue;
    fired.push_back(step);
    steps.update_last_triggered_step(step, 0);
  }
  EXPECT_EQ(fired, (std::vector<int>{1, 4, 7}));
  internal::SecondOrStepTimer secs("t", 2.0, {});
  EXPECT_TRUE(secs.should_trigger_for_step(1, 100));
  EXPECT_FALSE(secs.update_last_triggered_step(1, 100));
  EXPECT_FALSE(secs.should_trigger_for_step(1, 200));  // never twice for one step
  EXPECT_FALSE(secs.should_trigger_for_step(2, 101.9));
  EXPECT_TRUE(secs.should_trigger_for_step(2, 102));
  EXPECT_DOUBLE_EQ(secs.update_last_triggered_step(2, 103)->seconds, 3);
  EXPECT_THROW(internal::SecondOrStepTimer("t", 1.0, 1), InvalidArgument);
  EXPECT_THROW(internal::SecondOrStepTimer("t", {}, {}), InvalidArgument);
}

TEST(MonitoredTrainingSessionTest, CallsHooksInOrder) {
  Training training;
  std::vector<std::string> calls;
  {
    MonitoredTrainingSession session(
        training.model, {.hooks = {std::make_shared<Recorder>(calls, "a"), StopAtStepHook({.num_steps = 2})},
                         .chief_only_hooks = {std::make_shared<Recorder>(calls, "b")}});
    while (!session.should_stop()) session.run([&] { return training.step(); });
    EXPECT_THROW(session.run([] {}), FailedPrecondition);
    session.close();
  }
  EXPECT_EQ(calls, (std::vector<std::string>{"a.begin", "b.begin", "a.create0", "b.create0", "a.before",
                                             "b.before", "a.after1", "b.after1", "a.before", "b.before",
                                             "a.after2", "b.after2", "a.end", "b.end"}));
}

TEST(MonitoredTrainingSessionTest, GoesOnFromTheNewestCheckpointAtTheSamePlaceInTheData) {
  const TempFolder folder;
  // Uninterrupted.
  Training whole;
  for (int i = 0; i < 20; ++i) whole.step();

  const auto train = [&](bool fail) {
    Training training;
    std::int64_t steps = 0;
    try {
      MonitoredTrainingSession session(training.model, {.checkpoint_dir = folder.path(),
                                                        .hooks = {StopAtStepHook({.last_step = 20})},
                                                        .save_checkpoint_steps = 5,
                                                        .datasets = {{"train", &training.batches}}});
      while (!session.should_stop()) {
        session.run([&] {
          if (fail && training.model.global_step() == 13) throw std::runtime_error("the power is out");
          ++steps;
          return training.step();
        });
      }
      session.close();
    } catch (const std::runtime_error&) {
    }
    return std::pair(steps, training.model.parameter_digest());
  };
  EXPECT_EQ(train(true).first, 13);
  const auto [steps, digest] = train(false);
  EXPECT_EQ(steps, 10);  // from step 10 on
  EXPECT_EQ(digest, whole.model.parameter_digest());
  EXPECT_EQ(train(false).first, 0);
}

TEST(MonitoredTrainingSessionTest, RecoversFromALossByRepeatingFromTheLastCheckpoint) {
  const TempFolder folder;
  Training training;
  std::vector<std::string> calls;
  bool lost = false;
  MonitoredTrainingSession session(
      training.model, {.checkpoint_dir = folder.path(),
                       .hooks = {std::make_shared<Recorder>(calls, "h"), StopAtStepHook({.last_step = 8})},
                       .save_checkpoint_steps = 5});
  while (!session.should_stop()) {
    session.run([&] {
      if (training.model.global_step() == 7 && !std::exchange(lost, true)) throw Unavailable("ps:0 is gone");
      return training.step();
    });
  }
  session.close();
  EXPECT_EQ(training.model.global_step(), 8);
  EXPECT_EQ(std::ranges::count(calls, "h.create0"), 1);
  EXPECT_EQ(std::ranges::count(calls, "h.create5"), 1);
  EXPECT_EQ(std::ranges::count(calls, "h.after6"), 2);
}

TEST(MonitoredTrainingSessionTest, TheEndOfTheDataIsACleanEnd) {
  const auto strategy = mirrored(2);
  Model model = line_model(strategy);
  auto batches = strategy.distribute(line_data(24).batch(8));
  std::vector<std::string> calls;
  MonitoredTrainingSession session(model, {.hooks = {std::make_shared<Recorder>(calls, "h")}});
  int done = 0;
  while (!session.should_stop()) done += session.run([&] { return model.train_step(batches.next()); });
  session.close();
  EXPECT_EQ(done, 3);
  EXPECT_EQ(calls.back(), "h.end");
}

TEST(MonitoredTrainingSessionTest, AnErrorSkipsEndAndIsPassedOn) {
  Training training;
  std::vector<std::string> calls;
  EXPECT_EQ(message_of<std::domain_error>([&] {
              MonitoredTrainingSession session(training.model,
                                               {.hooks = {std::make_shared<Recorder>(calls, "h")}});
              session.run([]() -> double { throw std::domain_error("no"); });
            }),
            "no");
  EXPECT_EQ(calls.back(), "h.before");
}

TEST(MonitoredTrainingSessionTest, SavesAndSaysSoWhenItIsToldToGo) {
  const TempFolder folder;
  Training training(2);
  MonitoredTrainingSession session(training.model, {.checkpoint_dir = folder.path()});
  const std::string message = message_of<Preempted>([&] {
    for (int i = 0; i < 10; ++i) {
      session.run([&] {
        if (i == 3) raise(SIGTERM);
        return training.step();
      });
    }
  });
  EXPECT_NE(message.find("stopped after step 4"), std::string::npos) << message;
  EXPECT_TRUE(latest_checkpoint(folder.path())->find("step-000000000004") != std::string::npos);
}

TEST(MonitoredTrainingSessionTest, RefusesASecondChiefAndTheFolderOfAnotherModel) {
  const TempFolder folder;
  Training training;
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { MonitoredTrainingSession(training.model, {.is_chief = false}); }),
      "MonitoredTrainingSession: is_chief is false, but this task is the chief: a cluster has one, its chief "
      "task or else worker 0; leave is_chief out");
  testing_support::run_tasks(2, 1, {}, [&](Strategy& strategy, int rank) {
    Model model = line_model(strategy);
    if (rank == 0) return;
    EXPECT_EQ(
        message_of<InvalidArgument>([&] { MonitoredTrainingSession(model, {.is_chief = true}); }),
        "MonitoredTrainingSession: is_chief is true, but this task is not the chief: a cluster has one, its "
        "chief task or else worker 0; leave is_chief out");
  });
  { MonitoredTrainingSession session(training.model, {.checkpoint_dir = folder.path()}); }
  Model other([] { return torch::nn::Sequential(torch::nn::Linear(1, 1)); });
  other.compile({.optimizer = optimizers::SGD(), .loss = losses::mean_squared_error()});
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { MonitoredTrainingSession(other, {.checkpoint_dir = folder.path()}); }),
            "checkpoint " + *latest_checkpoint(folder.path()) +
                " is of another model: it has no \"0.bias\"; use the folder of this model, or an empty one");
}

TEST(SessionHooksTest, WriteSummariesOnTime) {
  const TempFolder folder;
  Training training;
  {
    MonitoredTrainingSession session(training.model, {.hooks = {StopAtStepHook({.num_steps = 10})},
                                                      .save_summaries_steps = 4,
                                                      .log_step_count_steps = 5,
                                                      .summary_dir = folder.path()});
    while (!session.should_stop()) session.run([&] { return training.step(); });
    session.close();
  }
  std::vector<std::int64_t> losses, rates;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    internal::EventReader reader(file.path());
    while (const auto event = reader.next()) {
      for (const auto& value : event->values) {
        (value.tag == "loss" ? losses : rates).push_back(event->step);
      }
    }
  }
  EXPECT_EQ(losses, (std::vector<std::int64_t>{1, 5, 9}));
  EXPECT_EQ(rates, (std::vector<std::int64_t>{5, 10}));
}

class CountingListener final : public CheckpointSaverListener {
 public:
  explicit CountingListener(std::string dir) : dir_(std::move(dir)) {}
  void before_save(Model&, std::int64_t step) override { before.push_back(step); }
  bool after_save(Model&, std::int64_t step) override {
    EXPECT_TRUE(latest_checkpoint(dir_)) << "not on the disk";
    return step >= 6;
  }
  std::vector<std::int64_t> before;

 private:
  std::string dir_;
};

TEST(SessionHooksTest, AListenerOfSavesCanStop) {
  const TempFolder folder;
  Training training;
  const auto listener = std::make_shared<CountingListener>(folder.path());
  MonitoredTrainingSession session(
      training.model, {.hooks = {CheckpointSaverHook(
                           {.checkpoint_dir = folder.path(), .save_steps = 3, .listeners = {listener}})}});
  while (!session.should_stop()) session.run([&] { return training.step(); });
  session.close();
  EXPECT_EQ(listener->before, (std::vector<std::int64_t>{0, 3, 6}));
}

TEST(SessionHooksTest, NanStopsOrThrows) {
  Training training;
  const auto run = [&](bool fail) {
    MonitoredTrainingSession session(training.model, {.hooks = {NanTensorHook(fail)}});
    int steps = 0;
    while (!session.should_stop()) session.run([&] { return ++steps < 3 ? 0.5 : std::nan(""); });
    session.close();
    return steps;
  };
  EXPECT_EQ(run(false), 3);
  EXPECT_THROW(run(true), NonFiniteLoss);
}

TEST(SessionHooksTest, TheOthersAreCalledWhenTheyShould) {
  Training training;
  int fed = 0, final_ops = 0;
  MonitoredTrainingSession session(
      training.model, {.hooks = {FeedFnHook([&] { ++fed; }), FinalOpsHook([&](Model&) { ++final_ops; }),
                                 LoggingTensorHook({.every_n_iter = 2, .at_end = true}),
                                 GlobalStepWaiterHook(0), StopAtStepHook({.last_step = 3})}});
  while (!session.should_stop()) session.run([&] { return training.step(); });
  session.close();
  EXPECT_EQ(fed, 3);
  EXPECT_EQ(final_ops, 1);
  const std::string late = message_of<DeadlineExceeded>([&] {
    MonitoredTrainingSession waiting(training.model, {.hooks = {GlobalStepWaiterHook(100, 0.01)}});
    waiting.run([&] { return training.step(); });
  });
  EXPECT_NE(late.find("for global step 100, and it is 3"), std::string::npos) << late;
  EXPECT_THROW(StopAtStepHook({}), InvalidArgument);
  EXPECT_THROW(StopAtStepHook({.num_steps = 1, .last_step = 1}), InvalidArgument);
}

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(SessionHooksTest, ProfilerWritesAChromeTraceOfEveryStepThatIsDue) {
  const TempFolder folder;
  Training training(/*replicas=*/2);
  {
    MonitoredTrainingSession session(
        training.model,
        {.hooks = {ProfilerHook({.save_steps = 2, .output_dir = folder.path(), .show_memory = true}),
                   StopAtStepHook({.last_step = 5})}});
    while (!session.should_stop()) session.run([&] { return training.step(); });
  }
  ASSERT_EQ(files_in(folder.path()), (std::set<std::string>{"timeline-2.json", "timeline-4.json"}));

  std::ifstream file(folder.path() + "/timeline-4.json");
  const auto trace = nlohmann::json::parse(file);
  std::map<std::string, int> spans;
  std::multiset<std::int64_t> begins, ends;
  int counters = 0;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "X") ++spans[event.at("name")];
    if (phase == "X" && event.at("name") == "train_step") {
      EXPECT_EQ(event.at("args").at("step"), 4);
    }
    if (phase == "s") begins.insert(event.at("id").get<std::int64_t>());
    if (phase == "f") ends.insert(event.at("id").get<std::int64_t>());
    if (phase == "C") ++counters;
  }
  for (const char* once : {"step", "train_step", "input"}) EXPECT_EQ(spans[once], 1) << once;
  for (const char* each :
       {"replica", "forward", "backward", "reduce", "update", "aten::addmm", "AddmmBackward0"}) {
    EXPECT_GE(spans[each], 2) << each << " is not there for both replicas";
  }
  EXPECT_FALSE(begins.empty());
  EXPECT_EQ(begins, ends);
  EXPECT_EQ(std::set(begins.begin(), begins.end()).size(), begins.size()) << "an arrow begins twice";
  EXPECT_GT(counters, 0);
}

TEST(SessionHooksTest, AProfilerThatCannotWriteDoesNotStopTheTraining) {
  const TempFolder folder;
  std::ofstream(folder.path() + "/file") << "in the way";
  Training training;
  MonitoredTrainingSession session(
      training.model, {.hooks = {ProfilerHook({.save_steps = 1, .output_dir = folder.path() + "/file/below"}),
                                 StopAtStepHook({.last_step = 3})}});
  while (!session.should_stop()) session.run([&] { return training.step(); });
  EXPECT_EQ(training.model.global_step(), 3);
  EXPECT_THROW(ProfilerHook({}), InvalidArgument);
}

TEST(SupervisorTest, TrainsUntilAskedAndGoesOnAfterARestart) {
  const TempFolder folder;
  for (int run = 1; run <= 2; ++run) {
    Training training;
    Supervisor supervisor(training.model, {.logdir = folder.path()});
    supervisor.managed_session([&](MonitoredTrainingSession& session) {
      while (!supervisor.should_stop()) {
        session.run([&] { return training.step(); });
        if (training.model.global_step() == 5 * run) supervisor.request_stop();
      }
    });
    EXPECT_TRUE(supervisor.wait_for_stop(std::chrono::milliseconds(0)));
    EXPECT_EQ(training.model.global_step(), 5 * run);
  }
}

TEST(SupervisorTest, KeepsTrainingsOfSeveralNamesApart) {
  const TempFolder folder;
  const auto train = [&](const std::string& basename, std::int64_t steps) {
    Training training;
    Supervisor supervisor(training.model, {.logdir = folder.path(), .checkpoint_basename = basename});
    supervisor.managed_session([&](MonitoredTrainingSession& session) {
      for (std::int64_t i = 0; i < steps; ++i) session.run([&] { return training.step(); });
    });
    return training.model.global_step();
  };
  EXPECT_EQ(train("model.ckpt", 2), 2);
  EXPECT_EQ(train("second.ckpt", 3), 3);
  EXPECT_EQ(train("model.ckpt", 2), 4);
  EXPECT_EQ(train("second.ckpt", 3), 6);
  EXPECT_TRUE(latest_checkpoint(folder.path())->find("step-000000000004") != std::string::npos);
  EXPECT_TRUE(latest_checkpoint(folder.file("second.ckpt")));
  Training training;
  EXPECT_EQ(message_of<InvalidArgument>([&] { Supervisor(training.model, {.checkpoint_basename = "../a"}); }),
            "Supervisor: checkpoint_basename is \"../a\": expected a name without a slash");
  EXPECT_EQ(message_of<InvalidArgument>([&] { Supervisor(training.model, {.recovery_wait_secs = 0}); }),
            "Supervisor: recovery_wait_secs is 0: expected more than 0");
}

// What the process writes to standard error while this lives, in a file that can be read meanwhile.
class LogInFile {
 public:
  LogInFile() : before_(dup(STDERR_FILENO)) {
    std::fflush(stderr);
    const internal::FileDescriptor file(
        open(folder_.file("log").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600));
    dup2(file.get(), STDERR_FILENO);
  }
  ~LogInFile() {
    std::fflush(stderr);
    dup2(before_.get(), STDERR_FILENO);
  }

  // Whether the text is there within so many seconds.
  bool wait_for(const std::string& text, int seconds = 30) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (;;) {
      std::stringstream log;
      log << std::ifstream(folder_.file("log")).rdbuf();
      if (log.str().find(text) != std::string::npos) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  TempFolder folder_;
  internal::FileDescriptor before_;
};

// A worker of parameter servers is told to go on when the chief has restored the model, and not before.
TEST(SupervisorTest, AWorkerWaitsUntilTheChiefHasMadeTheModelReady) {
  const TempFolder folder;
  {
    Training before;
    Supervisor supervisor(before.model, {.logdir = folder.path()});
    supervisor.managed_session([&](MonitoredTrainingSession& session) {
      for (int i = 0; i < 5; ++i) session.run([&] { return before.step(); });
    });
  }
  const auto reserved = internal::ReservedPorts::choose("127.0.0.1", 3);
  using Hosts = std::vector<std::string>;
  const auto host = [&](std::size_t i) { return fmt::format("127.0.0.1:{}", reserved.ports()[i]); };
  const ClusterSpec cluster({{"ps", Hosts{host(0)}}, {"worker", Hosts{host(1), host(2)}}});
  std::jthread ps([&] { Server(cluster, "ps", 0).join(); });
  std::atomic<std::int64_t> seen = -1;
  const auto train = [&](int index) {
    const ParameterServerStrategy strategy(
        {.cluster = ResolvedCluster{.cluster = cluster, .task = TaskId{"worker", index}},
         .devices = {"/cpu:0"},
         .threads_per_replica = 1});
    Model model = line_model(strategy);
    auto batches = strategy.distribute(line_data(64).batch(8).repeat());
    Supervisor supervisor(model, {.logdir = folder.path(), .recovery_wait_secs = 0.01});
    supervisor.managed_session([&](MonitoredTrainingSession& session) {
      if (index == 1) seen = model.global_step();
      session.run([&] { return model.train_step(batches.next()); });
    });
  };
  {
    const LogInFile log;
    std::jthread worker([&] { train(1); });
    EXPECT_TRUE(log.wait_for("Supervisor: waiting for the chief to make the model ready since 0 s"));
    EXPECT_EQ(seen, -1);
    train(0);
    worker.join();
    ps.join();
  }
  EXPECT_GE(seen, 5);  // the chief's, and perhaps its next step
}

TEST(SupervisorTest, WhatALoopThrowsStopsTheTrainingAndIsRethrown) {
  Training training;
  Supervisor supervisor(training.model);
  std::atomic<int> calls = 0;
  EXPECT_EQ(message_of<std::domain_error>([&] {
              supervisor.managed_session([&](MonitoredTrainingSession& session) {
                supervisor.loop(0, [&] {
                  if (++calls == 3) throw std::domain_error("the disk is full");
                });
                while (!supervisor.should_stop()) session.run([&] { return training.step(); });
              });
            }),
            "the disk is full");
  EXPECT_EQ(calls, 3);
  EXPECT_THROW(supervisor.loop(1, [] {}), FailedPrecondition);
}

}  // namespace
}  // namespace tandem
