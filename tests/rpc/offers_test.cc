// What the tasks tell each other of themselves, and the key that they make of it.
#include <gtest/gtest.h>

#include "base/certificates.h"
#include "base/secret_file.h"
#include "rpc/beat_codec.h"
#include "rpc/limits.h"
#include "rpc/observer.h"
#include "rpc/strangers.h"
#include "rpc/support.h"
#include "support/temp_folder.h"

namespace tandem::testing_support {
namespace {

using internal::Incarnation;
using internal::Phase;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Offer = std::map<std::string, std::string>;
using Offers = std::map<TaskId, Offer>;

const std::string kAnyBytes("\0\xff\n\x80 bytes", 10);

ServerOptions offering(Offer offer, SecurityOptions security = {}) {
  return with_patience({.security = std::move(security), .offer = std::move(offer)});
}

// What a task knows of its run.
struct Known {
  Offers offers;
  std::uint64_t generation = 0;
  std::string key;
  std::string mode;

  friend bool operator==(const Known&, const Known&) = default;
};

Known known_to(TaskServer& server) {
  server.wait_for_all();
  return {server.offers(), server.generation(), server.data_key(), server.security_mode()};
}

TEST(Offers, AreKnownToAllOnceTheyHaveStarted) {
  const Workers workers(2, {"ps", "evaluator"});
  const std::vector<TaskId> tasks = workers.cluster.tasks();
  ASSERT_EQ(tasks.size(), 4u);
  const auto offer_of = [](const TaskId& task) {
    return task.type == "ps" ? Offer{} : Offer{{"name", task.name()}, {"bytes", kAnyBytes}, {"empty", ""}};
  };
  std::vector<TaskServer> servers;
  for (const TaskId& task : tasks) {
    servers.emplace_back(workers.cluster, task.type, task.index, offering(offer_of(task)));
    EXPECT_EQ(servers.back().cluster_id(), workers.cluster.id());
  }
  std::vector<std::future<Known>> known;
  for (TaskServer& server : servers) known.push_back(in_thread([&] { return known_to(server); }));
  const Known first = result_of(std::move(known[0]));
  EXPECT_EQ(first.offers,
            (Offers{{tasks[0], offer_of(tasks[0])}, {tasks[1], offer_of(tasks[1])}, {tasks[2], {}}}));
  EXPECT_EQ(first.generation, 1u);
  EXPECT_EQ(first.key.size(), 32u);
  for (std::size_t i = 1; i < 3; ++i) EXPECT_EQ(result_of(std::move(known[i])), first) << tasks[i].name();
  // Nobody waits for the evaluator, so it is no part of the run.
  const Known evaluator = result_of(std::move(known[3]));
  EXPECT_EQ(evaluator.offers, (Offers{{tasks[3], offer_of(tasks[3])}}));
  EXPECT_NE(evaluator.key, first.key);
  // A loss changes nothing of it.
  servers[1].leave();
  EXPECT_TRUE(eventually([&] { return servers[0].lost().has_value(); }));
  EXPECT_EQ(servers[0].offers(), first.offers);
  EXPECT_EQ(servers[0].data_key(), first.key);
  EXPECT_EQ(servers[0].generation(), first.generation);
}

TEST(Offers, OfAClusterOfOneAreItsOwn) {
  TaskServer server = TaskServer::create_local_server(offering({{"seed", "17"}}));
  server.wait_for_all();
  EXPECT_EQ(server.offers(), (Offers{{{"localhost", 0}, {{"seed", "17"}}}}));
  EXPECT_EQ(server.generation(), 1u);
  EXPECT_EQ(server.data_key().size(), 32u);
}

TEST(Offers, AreNotKnownBeforeTheStart) {
  const Workers workers(2);
  const TaskServer server(workers.cluster, "worker", 0, offering({{"seed", "17"}}));
  EXPECT_EQ(message_of<FailedPrecondition>([&] { server.offers(); }),
            "worker:0 has not started: what the tasks offer is known once wait_for_all() has returned");
  EXPECT_EQ(message_of<FailedPrecondition>([&] { server.generation(); }),
            "worker:0 has not started: the generation is known once wait_for_all() has returned");
  EXPECT_EQ(message_of<FailedPrecondition>([&] { server.data_key(); }),
            "worker:0 has not started: the key of the data plane is known once wait_for_all() has returned");
}

Offer of_entries(std::size_t count) {
  Offer offer;
  for (std::size_t i = 0; i < count; ++i) offer[fmt::format("key{:02}", i)] = "value";
  return offer;
}

// Each at its limit, and beyond.
TEST(Offers, HaveLimits) {
  const Workers workers(1);
  const auto take = [&](Offer offer) {
    TaskServer server(workers.cluster, "worker", 0, offering(offer));
    server.wait_for_all();
    EXPECT_EQ(server.offers().at({"worker", 0}), offer);
  };
  const auto refusal_of = [&](Offer offer) {
    return message_of<InvalidArgument>(
        [&] { TaskServer(workers.cluster, "worker", 0, offering(std::move(offer))); });
  };
  take(of_entries(internal::kOfferEntries));
  EXPECT_EQ(refusal_of(of_entries(internal::kOfferEntries + 1)),
            "ServerOptions::offer has 33 entries: at most 32");
  take({{std::string(internal::kOfferKeyBytes, 'k'), "value"}});
  EXPECT_EQ(
      refusal_of({{std::string(internal::kOfferKeyBytes + 1, 'k'), "value"}}),
      fmt::format(
          "ServerOptions::offer has the key \"{}\": expected 1 to 64 bytes of printable text, this has 65",
          std::string(65, 'k')));
  EXPECT_EQ(refusal_of({{"", "value"}}),
            "ServerOptions::offer has the key \"\": expected 1 to 64 bytes of printable text, this has 0");
  EXPECT_EQ(
      refusal_of({{"\xff", "value"}}),
      "ServerOptions::offer has the key \"\\xff\": expected 1 to 64 bytes of printable text, this has 1");
  take({{"k", std::string(internal::kOfferBytes - 1, 'v')}});
  EXPECT_EQ(refusal_of({{"k", std::string(internal::kOfferBytes - 2, 'v')}, {"l", "v"}}),
            "ServerOptions::offer has 4097 bytes of keys and values: at most 4096");
}

// In each of the three ways to know each other.
class OffersInMode : public ::testing::TestWithParam<const char*> {
 protected:
  SecurityOptions security() const {
    if (GetParam() == std::string("token")) {
      return {.mode = GetParam(), .token_file = folder_.file("token")};
    }
    return {.mode = GetParam(), .certs = folder_.path()};
  }
  void SetUp() override {
    internal::write_secret(folder_.file("token"), "0123456789abcdef");
    for (int index = 0; index < 3; ++index) {
      internal::save_certificate(
          folder_.file(fmt::format("worker-{}", index)),
          authority_.issue(internal::task_subject(workers_.cluster.id(), "worker", index), 30),
          authority_.certificate());
    }
  }
  TaskServer make(int index, Offer offer) const {
    return TaskServer(workers_.cluster, "worker", index, offering(std::move(offer), security()));
  }
  std::future<Known> start(int index, Offer offer) const {
    return in_thread([this, index, offer = std::move(offer)] {
      TaskServer server = make(index, offer);
      Known known = known_to(server);
      server.finish();
      return known;
    });
  }

  const TempFolder folder_;
  const Workers workers_{3};
  const internal::CertificateAuthority authority_ = internal::CertificateAuthority::create();
};

TEST_P(OffersInMode, ReachAllAndGiveOneKey) {
  std::vector<std::string> keys;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::future<Known>> tasks;
    Offers expected;
    for (int index = 0; index < 3; ++index) {
      const Offer offer{{"name", std::to_string(index)}, {"bytes", kAnyBytes}};
      expected[{"worker", index}] = offer;
      tasks.push_back(start(index, offer));
    }
    const Known first = result_of(std::move(tasks[0]));
    EXPECT_EQ(first.offers, expected);
    EXPECT_EQ(first.mode, GetParam());
    EXPECT_EQ(first.key.size(), 32u);
    EXPECT_EQ(result_of(std::move(tasks[1])), first);
    EXPECT_EQ(result_of(std::move(tasks[2])), first);
    keys.push_back(first.key);
  }
  // The same cluster, and even the same generation, but another run.
  EXPECT_NE(keys[0], keys[1]);
}

TEST_P(OffersInMode, OfATaskThatComesAgainWhileJoiningAreItsLast) {
  auto first = start(0, {{"name", "first"}});
  for (const char* name : {"once", "twice"}) {
    const TaskServer former = make(1, {{"name", name}, {"only", "mine"}});
    std::this_thread::sleep_for(milliseconds(300));  // it is heard meanwhile
  }
  auto second = start(1, {{"name", "last"}});
  std::this_thread::sleep_for(milliseconds(200));
  const Known third = result_of(start(2, {{"name", "third"}}));
  EXPECT_EQ(third.offers, (Offers{{{"worker", 0}, {{"name", "first"}}},
                                  {{"worker", 1}, {{"name", "last"}}},
                                  {{"worker", 2}, {{"name", "third"}}}}));
  EXPECT_EQ(result_of(std::move(first)), third);
  EXPECT_EQ(result_of(std::move(second)), third);
}

INSTANTIATE_TEST_SUITE_P(Modes, OffersInMode, ::testing::Values("insecure", "token", "tls"),
                         [](const auto& info) { return std::string(info.param); });

// A process of a task that speaks to worker:0 as this test moves it. It only speaks: nobody listens at the
// task's address.
class Puppet {
 public:
  Puppet(const Workers& workers, int task, std::uint64_t process)
      : stranger_(workers.address(0)),
        tasks_(static_cast<int>(workers.cluster.tasks().size())),
        incarnation{.high = static_cast<std::uint64_t>(task), .low = process} {
    const auto answer = stranger_.shake_hands(
        {.cluster = workers.cluster,
         .task = TaskId{"worker", task},
         .incarnation = incarnation,
         .offer = {.entries = {{"process", std::to_string(process)}}, .key_share = std::string(32, 's')}},
        {"worker", 0});
    EXPECT_TRUE(answer && answer->has_welcome());
    if (answer) hears = internal::incarnation_of(answer->welcome().incarnation());
  }

  void beat(Phase phase, const internal::View& view = {}) {
    internal::Beat beat{.sequence = ++sequence_, .phase = phase};
    if (view.generation != 0) beat.view = view.digest();
    beat.sightings.resize(static_cast<std::size_t>(tasks_));
    beat.sightings[0] = {.incarnation = hears, .phase = Phase::kJoining, .silence = internal::Time(0)};
    rpc::Frame frame;
    internal::encode(beat, *frame.mutable_beat());
    stranger_.say(frame);
  }

 private:
  Stranger stranger_;
  const int tasks_;
  std::uint64_t sequence_ = 0;

 public:
  const Incarnation incarnation;
  Incarnation hears;  // worker:0
};

// worker:0, which is real, and others that are not.
class OffersOfPuppets : public ::testing::Test {
 protected:
  bool has_started() const {
    try {
      server_.offers();
      return true;
    } catch (const FailedPrecondition&) {
      return false;
    }
  }
  // What worker:0 tells of a task.
  rpc::TaskStatus status_of(int task) const {
    rpc::TaskStatus status;
    internal::observe({.cluster = workers_.cluster}, {"worker", 0}, kPatience, [&](const rpc::Table& table) {
      status = table.tasks(task);
      return false;
    });
    return status;
  }
  std::string state() const { return status_of(0).state(); }
  internal::View view_of(std::uint64_t generation, const Puppet& second, const Puppet& third) const {
    return {generation, {second.hears, second.incarnation, third.incarnation}};
  }
  // worker:1 says that it has started with this view, for as long as it takes worker:0 to be ready.
  bool start_on_the_word_of(Puppet& second, Puppet& third, std::uint64_t generation) const {
    return eventually([&] {
      third.beat(Phase::kJoining);
      second.beat(Phase::kJoining);
      second.beat(Phase::kRunning, view_of(generation, second, third));
      return has_started();
    });
  }
  std::string process_of(int task) const { return server_.offers().at({"worker", task}).at("process"); }

  const Workers workers_{3};
  const TaskServer server_{workers_.cluster, "worker", 0, offering({{"process", "real"}})};
};

TEST_F(OffersOfPuppets, NobodyStartsOnAnothersWordBeforeHeHasHeardAll) {
  Puppet second(workers_, 1, 1);
  const Puppet unheard(workers_, 2, 1);
  const auto begin = steady_clock::now();
  while (steady_clock::now() - begin < milliseconds(400)) {
    second.beat(Phase::kJoining);
    second.beat(Phase::kRunning, view_of(1, second, unheard));
    ASSERT_FALSE(has_started());
    std::this_thread::sleep_for(milliseconds(5));
  }
  // One that is heard but has not said that it is ready is enough: another one has heard it say so.
  EXPECT_EQ(state(), "joining");
  {
    Puppet third(workers_, 2, 1);
    EXPECT_TRUE(start_on_the_word_of(second, third, 1));
  }
  EXPECT_EQ(server_.generation(), 1u);
  EXPECT_EQ(process_of(0), "real");
  EXPECT_EQ(process_of(1), "1");
  EXPECT_EQ(process_of(2), "1");
}

TEST_F(OffersOfPuppets, AProcessThatGoesWhileOthersAreReadyTakesItsOfferAlong) {
  Puppet second(workers_, 1, 1);
  {
    Puppet former(workers_, 2, 1);
    EXPECT_TRUE(eventually([&] {
      second.beat(Phase::kJoining);
      former.beat(Phase::kJoining);
      return state() == "ready";
    }));
  }
  EXPECT_TRUE(eventually([&] {
    second.beat(Phase::kJoining);
    return state() == "joining";
  }));
  Puppet third(workers_, 2, 2);
  EXPECT_TRUE(start_on_the_word_of(second, third, 2));
  EXPECT_EQ(server_.generation(), 2u);
  EXPECT_EQ(process_of(2), "2");
}

TEST_F(OffersOfPuppets, AProcessThatWasTakenForGoneAndSpeaksAgainBringsItsOfferBack) {
  Puppet second(workers_, 1, 1);
  Puppet third(workers_, 2, 1);
  EXPECT_TRUE(eventually([&] {
    second.beat(Phase::kJoining);
    third.beat(Phase::kJoining);
    return state() == "ready";
  }));
  // Silent for so long that another process gets in, and is the one that counts.
  std::this_thread::sleep_for(milliseconds(700));
  {
    Puppet another(workers_, 2, 2);
    EXPECT_TRUE(eventually([&] {
      second.beat(Phase::kJoining);
      another.beat(Phase::kJoining);
      return status_of(2).silence_ms() < 600 && state() == "ready";
    }));
  }
  // It is gone; the first one was only slow.
  EXPECT_TRUE(eventually([&] {
    second.beat(Phase::kJoining);
    return state() == "joining";
  }));
  EXPECT_TRUE(start_on_the_word_of(second, third, 3));
  EXPECT_EQ(server_.generation(), 3u);
  EXPECT_EQ(process_of(2), "1");
}

TEST(Offers, AreNotForObservers) {
  const Workers workers(2);
  const std::string secret = "a value that only tasks see";
  TaskServer first(workers.cluster, "worker", 0, offering({{"secret", secret}}));
  TaskServer second(workers.cluster, "worker", 1, offering({{"secret", secret}}));
  first.wait_for_all();
  second.wait_for_all();
  Stranger observer(workers.address(0));
  const auto challenge_and_welcome = observer.shake_hands({.cluster = workers.cluster}, {"worker", 0});
  ASSERT_TRUE(challenge_and_welcome && challenge_and_welcome->has_welcome());
  const auto table = observer.hear();
  ASSERT_TRUE(table && table->has_table());
  EXPECT_EQ(table->table().tasks_size(), 2);
  EXPECT_EQ(table->SerializeAsString().find(secret), std::string::npos);
  EXPECT_EQ(table->SerializeAsString().find(first.data_key()), std::string::npos);
  // Nor has an observer anything to offer.
  rpc::Hello hello;
  ASSERT_TRUE(hello.ParseFromString(internal::make_hello(
      {.cluster = workers.cluster, .offer = {.entries = {{"k", "v"}}, .key_share = "share"}},
      {"worker", 0})));
  EXPECT_EQ(hello.offer_size(), 0);
  EXPECT_EQ(hello.key_share(), "");
}

}  // namespace
}  // namespace tandem::testing_support
