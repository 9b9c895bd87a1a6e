#include "tandem/task_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file_descriptor.h"
#include "base/net.h"
#include "rpc/support.h"

namespace tandem::testing_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(TaskServer, TwoTasksStartTogetherAndFinish) {
  const Workers workers(2);
  const auto run = [&](int index) {
    TaskServer server(workers.cluster, "worker", index, with_patience());
    server.wait_for_all();
    const auto started = steady_clock::now();
    server.set_progress(10, 100);
    server.check();
    server.finish();
    server.join();
    EXPECT_FALSE(server.lost());
    return started;
  };
  auto first = in_thread([&] { return run(0); });
  // The later one is waited for.
  std::this_thread::sleep_for(milliseconds(300));
  const auto second_made = steady_clock::now();
  auto second = in_thread([&] { return run(1); });
  const auto a = result_of(std::move(first));
  const auto b = result_of(std::move(second));
  EXPECT_GT(a, second_made);
  EXPECT_LT(a > b ? a - b : b - a, milliseconds(500));
}

TEST(TaskServer, SaysWhereItListens) {
  const Workers workers(2);
  const TaskServer server(workers.cluster, "worker", 1, with_patience());
  EXPECT_EQ(server.target(), "grpc://" + workers.address(1));
  EXPECT_EQ(server.port(), workers.port(1));
  EXPECT_EQ(server.task(), (TaskId{"worker", 1}));
}

TEST(TaskServer, ALocalServerIsAClusterOfItsOwn) {
  TaskServer server = TaskServer::create_local_server();
  EXPECT_EQ(server.target(), fmt::format("grpc://127.0.0.1:{}", server.port()));
  EXPECT_GT(server.port(), 0);
  EXPECT_EQ(server.task(), (TaskId{"localhost", 0}));
  const auto begin = steady_clock::now();
  server.wait_for_all();
  EXPECT_LT(steady_clock::now() - begin, milliseconds(500));
  server.check();
  server.finish();
  server.join();
  TaskServer moved = std::move(server);
  EXPECT_FALSE(moved.lost());
}

TEST(TaskServer, TakesTheOnlyJobAndTheOnlyTaskForGranted) {
  const Workers one(1);
  EXPECT_EQ(TaskServer(one.cluster).task(), (TaskId{"worker", 0}));
  EXPECT_EQ(TaskServer(one.cluster, "worker").task(), (TaskId{"worker", 0}));
  const Workers two(2);
  EXPECT_EQ(TaskServer(two.cluster, "", 1).task(), (TaskId{"worker", 1}));
}

TEST(TaskServer, AsksForTheJobAndTheIndexIfThereAreSeveral) {
  const Workers workers(2, {"ps"});
  const auto message = [&](const std::string& job, std::optional<int> index) {
    return message_of<InvalidArgument>([&] { TaskServer(workers.cluster, job, index); });
  };
  EXPECT_EQ(message("", 0), "the cluster has the jobs worker, ps: say which one this task is of");
  EXPECT_EQ(message("worker", {}), "job \"worker\" has 2 tasks: say the index of this one");
  EXPECT_NE(message("chief", 0).find("chief"), std::string::npos);
  EXPECT_NE(message("worker", 2).find("2"), std::string::npos);
  EXPECT_EQ(message_of<InvalidArgument>([] { TaskServer(ClusterSpec{}); }),
            "a TaskServer needs a cluster with at least one task");
}

// Something else that listens at that port of that address.
internal::FileDescriptor listener(const std::string& host, int port) {
  const internal::SocketAddress address = internal::resolve_host(host, port).front();
  internal::FileDescriptor made(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  EXPECT_EQ(bind(made.get(), address.get(), address.length), 0);
  EXPECT_EQ(listen(made.get(), 1), 0);
  return made;
}

TEST(TaskServer, NamesThePortThatIsInUseAndAFreeOne) {
  const Workers workers(1);
  const auto other = listener("127.0.0.1", workers.port(0));
  const std::string message = message_of<Unavailable>([&] { TaskServer(workers.cluster, "worker", 0); });
  const std::string begin =
      fmt::format("worker:0 cannot listen at 127.0.0.1:{}: the port is in use; port ", workers.port(0));
  ASSERT_EQ(message.substr(0, begin.size()), begin);
  ASSERT_TRUE(message.ends_with(" is free")) << message;
  const int free_port = std::stoi(message.substr(begin.size()));
  EXPECT_NE(free_port, workers.port(0));
  listener("127.0.0.1", free_port);
}

// "localhost" may stand for two addresses; half a port is not enough.
TEST(TaskServer, APortInUseAtOneAddressOfItsHostIsInUse) {
  const Workers workers(1);
  const auto other = listener("127.0.0.1", workers.port(0));
  const ClusterSpec cluster(
      {{"worker", std::vector<std::string>{fmt::format("localhost:{}", workers.port(0))}}});
  const std::string message = message_of<Unavailable>([&] { TaskServer(cluster, "worker", 0); });
  EXPECT_NE(message.find("the port is in use"), std::string::npos) << message;
}

TEST(TaskServer, RefusesAnAddressThatIsNotOfThisMachine) {
  const ClusterSpec cluster({{"worker", {"192.0.2.1:2222", "192.0.2.2:2222"}}});
  const std::string message = message_of<InvalidArgument>(
      [&] { TaskServer(cluster, "worker", 0, {.security = {.insecure_network = true}}); });
  EXPECT_NE(message.find("worker:0 cannot listen at 192.0.2.1:2222: that is no address of this machine"),
            std::string::npos)
      << message;
}

TEST(TaskServer, APsJoinsUntilTheWorkersHaveFinished) {
  const Workers workers(2, {"ps"});
  auto ps = in_thread([&] {
    TaskServer server(workers.cluster, "ps", 0, with_patience());
    server.join();
    return steady_clock::now();
  });
  std::vector<std::future<steady_clock::time_point>> ends;
  for (int index = 0; index < 2; ++index) {
    ends.push_back(in_thread([&, index] {
      TaskServer server(workers.cluster, "worker", index, with_patience());
      server.wait_for_all();
      std::this_thread::sleep_for(milliseconds(200 * index));
      const auto end = steady_clock::now();
      server.finish();
      return end;
    }));
  }
  const auto first = result_of(std::move(ends[0]));
  const auto second = result_of(std::move(ends[1]));
  EXPECT_GT(result_of(std::move(ps)), std::max(first, second));
}

TEST(TaskServer, AnEvaluatorIsNeitherWaitedForNorMissed) {
  const Workers workers(1, {"evaluator"});
  TaskServer worker(workers.cluster, "worker", 0, with_patience());
  worker.wait_for_all();
  {
    TaskServer evaluator(workers.cluster, "evaluator", 0, with_patience());
    evaluator.wait_for_all();
  }
  // It comes again, and has nothing against the end of the worker.
  TaskServer evaluator(workers.cluster, "evaluator", 0, with_patience());
  evaluator.wait_for_all();
  auto joined = in_thread([&] { evaluator.join(); });
  worker.check();
  worker.finish();
  result_of(std::move(joined));
  EXPECT_FALSE(worker.lost());
}

// Its link to the evaluator still stands when the worker goes.
TEST(TaskServer, AWorkerGoesWhileTheEvaluatorStays) {
  const Workers workers(2, {"evaluator"});
  TaskServer evaluator(workers.cluster, "evaluator", 0, with_patience());
  std::vector<std::future<void>> ends;
  for (int index = 0; index < 2; ++index) {
    ends.push_back(in_thread([&, index] {
      TaskServer server(workers.cluster, "worker", index, with_patience());
      server.wait_for_all();
      server.finish();
    }));
  }
  for (auto& end : ends) result_of(std::move(end));
  evaluator.join();
}

TEST(TaskServer, TwoProgramsThatDifferAreRefusedOnBothSides) {
  const Workers workers(2);
  const auto made_with = [&](int index, const char* batch_size) {
    return [&workers, index, batch_size] {
      return TaskServer(workers.cluster, "worker", index,
                        with_patience({.program = {{"batch_size", batch_size}, {"seed", "1"}}}));
    };
  };
  const Pair said = start_both(made_with(0, "128"), made_with(1, "64"));
  EXPECT_EQ(said.first,
            fmt::format("worker:0 is refused by worker:1 ({}): worker:1 and worker:0 were started "
                        "differently: batch_size is 64 for worker:1, 128 for worker:0",
                        workers.address(1)));
  EXPECT_EQ(said.second,
            fmt::format("worker:1 is refused by worker:0 ({}): worker:0 and worker:1 were started "
                        "differently: batch_size is 128 for worker:0, 64 for worker:1",
                        workers.address(0)));
}

TEST(TaskServer, ADifferenceThatIsLongOrNotPlainTextIsStillTold) {
  const Workers workers(2);
  const auto made_with = [&](int index, const std::string& name) {
    return [&workers, index, name] {
      return TaskServer(workers.cluster, "worker", index, with_patience({.program = {{"name", name}}}));
    };
  };
  std::string umlauts = "a";  // so that no cut after an even number of bytes is between two letters
  for (int i = 0; i < 300; ++i) umlauts += "ä";
  for (const std::string& odd : {umlauts, std::string("two\nlines"), std::string("\xff\xfe")}) {
    const Pair said = start_both(made_with(0, "plain"), made_with(1, odd));
    EXPECT_NE(said.first.find("name is"), std::string::npos) << said.first;
    EXPECT_NE(said.second.find("name is plain for worker:0"), std::string::npos) << said.second;
    for (const std::string& line : {said.first, said.second}) {
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      EXPECT_LT(line.size(), 1000u);
    }
  }
}

TEST(TaskServer, TwoClustersThatDifferAreRefusedWithTheTaskInWhichTheyDo) {
  const Workers workers(3);
  const ClusterSpec other(
      {{"worker", std::vector<std::string>{workers.address(0), workers.address(1), "127.0.0.1:9"}}});
  const Pair said = start_both([&] { return TaskServer(workers.cluster, "worker", 0, with_patience()); },
                               [&] { return TaskServer(other, "worker", 1, with_patience()); });
  EXPECT_EQ(said.first, fmt::format("worker:0 is refused by worker:1 ({}): clusters differ: worker:2 is "
                                    "127.0.0.1:9 for worker:1, {} for worker:0",
                                    workers.address(1), workers.address(2)));
  EXPECT_EQ(said.second, fmt::format("worker:1 is refused by worker:0 ({}): clusters differ: worker:2 is "
                                     "{} for worker:0, 127.0.0.1:9 for worker:1",
                                     workers.address(0), workers.address(2)));
}

TEST(TaskServer, TheOrderOfTheJobsDoesNotMatter) {
  const Workers workers(1, {"ps"});
  const ClusterSpec other({{"ps", std::vector<std::string>{workers.address(1)}},
                           {"worker", std::vector<std::string>{workers.address(0)}}});
  const Pair said = start_both([&] { return TaskServer(workers.cluster, "worker", 0, with_patience()); },
                               [&] { return TaskServer(other, "ps", 0, with_patience()); });
  EXPECT_EQ(said.first, "");
  EXPECT_EQ(said.second, "");
}

// Three addresses of this machine with one port.
ClusterSpec on_two_addresses(const Workers& workers) {
  return ClusterSpec({{"worker", std::vector<std::string>{fmt::format("127.0.0.1:{}", workers.port(0)),
                                                          fmt::format("127.0.0.2:{}", workers.port(0))}}});
}

TEST(TaskServer, TwoTasksThatHaveEachOthersAddressAreTold) {
  const Workers workers(1);
  const ClusterSpec cluster = on_two_addresses(workers);
  const Pair said =
      start_both([&] { return TaskServer(cluster, "worker", 0, with_patience({.bind = "127.0.0.2"})); },
                 [&] { return TaskServer(cluster, "worker", 1, with_patience({.bind = "127.0.0.1"})); });
  // Each reaches itself where the other should be.
  EXPECT_NE(said.first.find("this is worker:0, not worker:1: two tasks have each other's address"),
            std::string::npos)
      << said.first;
  EXPECT_NE(said.second.find("this is worker:1, not worker:0: two tasks have each other's address"),
            std::string::npos)
      << said.second;
}

TEST(TaskServer, ASecondProcessOfATaskIsRefusedByName) {
  const Workers workers(1);
  const ClusterSpec cluster = on_two_addresses(workers);
  TaskServer first(cluster, "worker", 0, with_patience());
  TaskServer second(cluster, "worker", 1, with_patience());
  first.wait_for_all();
  second.wait_for_all();
  TaskServer again(cluster, "worker", 1, with_patience({.bind = "127.0.0.3"}));
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { again.wait_for_all(); }),
      fmt::format("worker:1 is refused by worker:0 (127.0.0.1:{}): another process is worker:1 already, "
                  "and it is alive: two have the same task index",
                  workers.port(0)));
  first.check();
  second.check();
}

TEST(TaskServer, GivesUpInTimeAndNamesWhoIsMissingAndWhy) {
  const Workers workers(3);
  TaskServer server(workers.cluster, "worker", 0, {.join_timeout = milliseconds(700)});
  const auto begin = steady_clock::now();
  EXPECT_EQ(message_of<Unavailable>([&] { server.wait_for_all(); }),
            fmt::format("worker:0 gives up after 0.7 s without worker:1 {} (Connection refused), worker:2 {} "
                        "(Connection refused)",
                        workers.address(1), workers.address(2)));
  EXPECT_LT(steady_clock::now() - begin, milliseconds(1500));
}

// What the other one says when `goes` has gone on the task in the middle of a run.
LostTask loss_after(const std::function<void(std::unique_ptr<TaskServer>&)>& goes) {
  const Workers workers(2);
  auto first = std::make_unique<TaskServer>(workers.cluster, "worker", 0, with_patience());
  TaskServer second(workers.cluster, "worker", 1, with_patience());
  first->wait_for_all();
  second.wait_for_all();
  second.set_progress(7);
  goes(first);
  const std::string message = message_of<Unavailable>([&] { second.join(); });
  EXPECT_EQ(message_of<Unavailable>([&] { second.check(); }), message);
  const auto lost = second.lost();
  if (!lost) {
    ADD_FAILURE() << "nobody is lost";
    return {};
  }
  EXPECT_EQ(lost->message, message);
  EXPECT_EQ(lost->address, workers.address(0));
  EXPECT_NE(message.find(fmt::format("worker:0 ({}) left before the end", workers.address(0))),
            std::string::npos)
      << message;
  return *lost;
}

TEST(TaskServer, ATaskThatLeavesIsNamedByTheOthers) {
  const LostTask lost = loss_after([](std::unique_ptr<TaskServer>& server) { server->leave(); });
  EXPECT_EQ(lost.evidence, "left");
  EXPECT_EQ(lost.task, (TaskId{"worker", 0}));
}

TEST(TaskServer, ATaskThatIsDestroyedWithoutFinishHasLeft) {
  const LostTask lost = loss_after([](std::unique_ptr<TaskServer>& server) { server.reset(); });
  EXPECT_EQ(lost.evidence, "left");
  EXPECT_EQ(lost.task, (TaskId{"worker", 0}));
}

// Two tasks in the middle of a run.
struct RunOfTwo {
  RunOfTwo() {
    for (int index = 0; index < 2; ++index) {
      servers.push_back(std::make_unique<TaskServer>(workers.cluster, "worker", index, with_patience()));
    }
    for (const auto& server : servers) server->wait_for_all();
  }
  TaskServer& first() { return *servers[0]; }
  TaskServer& second() { return *servers[1]; }

  const Workers workers{2};
  std::vector<std::unique_ptr<TaskServer>> servers;
};

TEST(TaskServer, TellsAListenerOfALossOnceAndAsSoonAsItTellsAnyone) {
  RunOfTwo run;
  std::mutex mutex;
  std::vector<LostTask> told;
  std::optional<steady_clock::time_point> told_at;
  std::thread::id told_on;
  bool was_told_elsewhere = false;
  run.second().on_lost([&](const LostTask& lost) {
    const std::lock_guard lock(mutex);
    told.push_back(lost);
    told_at = steady_clock::now();
    told_on = std::this_thread::get_id();
    const auto elsewhere = run.second().lost();
    was_told_elsewhere = elsewhere && elsewhere->message == lost.message;
  });
  run.first().leave();
  EXPECT_TRUE(eventually([&] { return run.second().lost().has_value(); }));
  const auto lost_at = steady_clock::now();
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return told_at.has_value();
  }));
  EXPECT_THROW(run.second().join(), Unavailable);
  run.second().finish();
  std::this_thread::sleep_for(milliseconds(200));
  const std::lock_guard lock(mutex);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].task, (TaskId{"worker", 0}));
  EXPECT_EQ(told[0].message, run.second().lost()->message);
  EXPECT_TRUE(was_told_elsewhere);
  EXPECT_NE(told_on, std::this_thread::get_id());
  EXPECT_LT(*told_at - lost_at, milliseconds(100));
}

TEST(TaskServer, AListenerThatComesAfterTheLossIsCalledAtOnce) {
  RunOfTwo run;
  run.first().leave();
  EXPECT_TRUE(eventually([&] { return run.second().lost().has_value(); }));
  for (int i = 0; i < 2; ++i) {
    int calls = 0;
    std::thread::id called_on;
    run.second().on_lost([&](const LostTask& lost) {
      ++calls;
      called_on = std::this_thread::get_id();
      EXPECT_EQ(lost.evidence, "left");
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(called_on, std::this_thread::get_id());
  }
}

TEST(TaskServer, AListenerMayCallWhatItLikes) {
  RunOfTwo run;
  std::promise<void> called;
  run.second().on_lost([&](const LostTask&) {
    TaskServer& server = run.second();
    EXPECT_THROW(server.check(), Unavailable);
    EXPECT_THROW(server.wait_for_all(), Unavailable);
    EXPECT_THROW(server.join(), Unavailable);
    EXPECT_EQ(server.offers().size(), 2u);
    server.set_progress(3);
    server.finish();
    server.leave();
    server.on_lost({});
    called.set_value();
    throw InvalidArgument("what a listener throws is logged");
  });
  run.first().leave();
  result_of(called.get_future());
  EXPECT_THROW(run.second().join(), Unavailable);
}

// What it refers to is gone by then.
TEST(TaskServer, AListenerIsNotCalledOnceItIsRemovedOrItsServerGoes) {
  std::atomic<int> calls = 0;
  {
    RunOfTwo run;
    run.second().on_lost([&](const LostTask&) { ++calls; });
    run.second().on_lost({});
    run.first().leave();
    EXPECT_TRUE(eventually([&] { return run.second().lost().has_value(); }));
  }
  {
    RunOfTwo run;
    run.first().on_lost([&](const LostTask&) { ++calls; });
    run.second().on_lost([&](const LostTask&) { ++calls; });
    run.first().finish();
    run.second().finish();
    run.second().join();
  }
  for (int i = 0; i < 5; ++i) {
    RunOfTwo run;
    auto listens = std::make_unique<std::atomic<bool>>(true);
    run.second().on_lost([&](const LostTask&) { EXPECT_TRUE(*listens); });
    auto leaver = in_thread([&] { run.servers[0].reset(); });
    run.servers[1].reset();
    *listens = false;
    result_of(std::move(leaver));
  }
  EXPECT_EQ(calls, 0);
}

TEST(TaskServer, NobodyWaitsOnATaskThatHasLeft) {
  const Workers workers(2);
  TaskServer server(workers.cluster, "worker", 0, with_patience());
  auto waiting = in_thread([&] { return message_of<FailedPrecondition>([&] { server.wait_for_all(); }); });
  server.leave();
  EXPECT_EQ(result_of(std::move(waiting)), "worker:0 has left: there is nothing to wait for");
  EXPECT_EQ(message_of<FailedPrecondition>([&] { server.join(); }),
            "worker:0 has left: there is nothing to wait for");
}

TEST(TaskServer, TwentyRoundsLeaveNothingBehind) {
  const Workers workers(2);
  const auto round = [&] {
    std::vector<std::future<void>> tasks;
    for (int index = 0; index < 2; ++index) {
      tasks.push_back(in_thread([&, index] {
        TaskServer server(workers.cluster, "worker", index, with_patience());
        server.wait_for_all();
        server.finish();
      }));
    }
    for (auto& task : tasks) result_of(std::move(task));
  };
  for (int i = 0; i < 3; ++i) round();
  const std::size_t threads = threads_of_this_process();
  const std::size_t descriptors = descriptors_of_this_process();
  for (int i = 3; i < 20; ++i) round();
  EXPECT_TRUE(eventually([&] { return threads_of_this_process() <= threads; }, milliseconds(5000)))
      << threads_of_this_process() << " threads, " << threads << " before";
  EXPECT_TRUE(eventually([&] { return descriptors_of_this_process() <= descriptors; }, milliseconds(5000)))
      << descriptors_of_this_process() << " descriptors, " << descriptors << " before";
  for (int i = 0; i < 2; ++i) listener("127.0.0.1", workers.port(i));
}

}  // namespace
}  // namespace tandem::testing_support
