// What strangers may say to a task before it knows them, and what they may answer.
#include "rpc/handshake.h"

#include <gtest/gtest.h>

#include <atomic>
#include <list>

#include "base/secret_file.h"
#include "rpc/limits.h"
#include "rpc/strangers.h"
#include "rpc/support.h"
#include "support/temp_folder.h"

namespace tandem::testing_support {
namespace {

using internal::Identity;
using internal::Security;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

const TaskId kServer{"worker", 0};
const TaskId kClient{"worker", 1};
constexpr const char* kToken = "a token that nobody guesses";

// worker:0 of a cluster that waits for worker:1, and what a stranger needs to know to be taken for the
// latter.
class Handshake : public ::testing::Test {
 protected:
  void listen_with_token() {
    internal::write_secret(folder_.file("token"), kToken);
    listen({.mode = "token", .token_file = folder_.file("token")});
    as_worker_1.security = {.mode = Security::Mode::kToken, .token = kToken};
  }
  void listen(SecurityOptions security = {}) {
    options_ = with_patience({.security = std::move(security)});
    server_.emplace(workers_.cluster, kServer.type, kServer.index, options_);
  }

  std::string address() const { return workers_.address(0); }

  // The task is none the worse for it all: the real worker:1 gets in. How long that took.
  steady_clock::duration expect_that_the_cluster_forms() {
    const auto begin = steady_clock::now();
    TaskServer other(workers_.cluster, kClient.type, kClient.index, options_);
    other.wait_for_all();
    server_->wait_for_all();
    const auto took = steady_clock::now() - begin;
    server_->check();
    other.finish();
    server_->finish();
    server_.reset();
    return took;
  }

  TempFolder folder_;
  Workers workers_{2};
  ServerOptions options_;
  std::optional<TaskServer> server_;
  Identity as_worker_1{.cluster = workers_.cluster,
                       .task = kClient,
                       .incarnation = {.high = 1, .low = 2},
                       .offer = {.key_share = std::string(internal::kNonceBytes, 's')}};
};

bool is_refused(const std::optional<rpc::Frame>& frame, const std::string& why) {
  return frame && frame->has_refusal() && frame->refusal().message().find(why) != std::string::npos;
}

rpc::Frame a_beat() {
  rpc::Frame frame;
  rpc::Beat& beat = *frame.mutable_beat();
  beat.set_sequence(1);
  beat.set_phase(1);
  beat.add_sightings();
  beat.add_sightings();
  return frame;
}

TEST_F(Handshake, WhoeverKnowsTheTokenIsWelcome) {
  listen_with_token();
  const auto answer = Stranger(address()).shake_hands(as_worker_1, kServer);
  EXPECT_TRUE(answer && answer->has_welcome());
}

TEST_F(Handshake, AWrongTokenIsRefused) {
  listen_with_token();
  as_worker_1.security.token = "a token that somebody guesses";
  Stranger stranger(address());
  EXPECT_TRUE(is_refused(stranger.shake_hands(as_worker_1, kServer), "the token is wrong or missing"));
  EXPECT_TRUE(stranger.end().ok());
  as_worker_1.security = {};
  EXPECT_TRUE(
      is_refused(Stranger(address()).shake_hands(as_worker_1, kServer), "the token is wrong or missing"));
  expect_that_the_cluster_forms();
}

TEST_F(Handshake, AReplayedHandshakeIsRefused) {
  listen_with_token();
  const std::string hello = internal::make_hello(as_worker_1, kServer);
  std::string proof;
  std::string nonce;
  {
    Stranger overheard(address());
    overheard.say_hello(hello);
    nonce = overheard.hear()->challenge().nonce();
    proof = internal::proof_tag(as_worker_1.security, 'C', hello, nonce);
    overheard.say_proof(proof);
    const auto answer = overheard.hear();
    ASSERT_TRUE(answer && answer->has_welcome());
  }
  Stranger replayer(address());
  replayer.say_hello(hello);
  const auto challenge = replayer.hear();
  ASSERT_TRUE(challenge && challenge->has_challenge());
  EXPECT_NE(challenge->challenge().nonce(), nonce);
  replayer.say_proof(proof);
  EXPECT_TRUE(is_refused(replayer.hear(), "the token is wrong or missing"));
  expect_that_the_cluster_forms();
}

// Someone in between who does not know the token cannot make a task offer something else.
TEST_F(Handshake, AnOfferThatWasChangedOnItsWayIsRefused) {
  listen_with_token();
  as_worker_1.offer.entries = {{"data_address", "10.0.0.1:40123"}};
  rpc::Hello hello;
  const std::string sent = internal::make_hello(as_worker_1, kServer);
  ASSERT_TRUE(hello.ParseFromString(sent));
  (*hello.mutable_offer())["data_address"] = "10.6.6.6:40123";
  Stranger between(address());
  between.say_hello(hello.SerializeAsString());
  between.say_proof(
      internal::proof_tag(as_worker_1.security, 'C', sent, between.hear()->challenge().nonce()));
  EXPECT_TRUE(is_refused(between.hear(), "the token is wrong or missing"));
  expect_that_the_cluster_forms();
}

TEST_F(Handshake, ATagThatIsSentBackProvesNothing) {
  listen_with_token();
  Stranger stranger(address());
  stranger.say_hello(internal::make_hello(as_worker_1, kServer));
  stranger.say_proof(stranger.hear()->challenge().tag());
  EXPECT_TRUE(is_refused(stranger.hear(), "the token is wrong or missing"));
}

TEST_F(Handshake, FramesOutOfTurnEndTheStream) {
  listen_with_token();
  const std::string hello = internal::make_hello(as_worker_1, kServer);
  const auto expect_end = [](Stranger& stranger) {
    const grpc::Status status = stranger.end();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(), "out of turn");
  };
  {
    SCOPED_TRACE("a beat before the proof");
    Stranger stranger(address());
    stranger.say_hello(hello);
    stranger.say(a_beat());
    expect_end(stranger);
  }
  {
    SCOPED_TRACE("a beat at once");
    Stranger stranger(address());
    stranger.say(a_beat());
    expect_end(stranger);
  }
  for (const std::string& first : {hello, std::string()}) {
    SCOPED_TRACE("two hellos");
    Stranger stranger(address());
    stranger.say_hello(first);
    stranger.say_hello(hello);
    expect_end(stranger);
  }
  {
    SCOPED_TRACE("a proof without a hello");
    Stranger stranger(address());
    stranger.say_proof(internal::proof_tag(as_worker_1.security, 'C', "", ""));
    expect_end(stranger);
  }
  {
    SCOPED_TRACE("what only servers say, and nothing at all");
    for (int kind = 0; kind < 5; ++kind) {
      rpc::Frame frame;
      if (kind == 1) frame.mutable_welcome();
      if (kind == 2) frame.mutable_challenge();
      if (kind == 3) frame.mutable_refusal();
      if (kind == 4) frame.mutable_table();
      Stranger stranger(address());
      stranger.say(frame);
      expect_end(stranger);
    }
  }
  {
    SCOPED_TRACE("a second proof");
    Stranger stranger(address());
    const auto welcome = stranger.shake_hands(as_worker_1, kServer);
    ASSERT_TRUE(welcome && welcome->has_welcome());
    stranger.say_proof("again");
    expect_end(stranger);
  }
  {
    SCOPED_TRACE("a beat of an observer");
    Stranger stranger(address());
    Identity observer = as_worker_1;
    observer.task.reset();
    const auto welcome = stranger.shake_hands(observer, kServer);
    ASSERT_TRUE(welcome && welcome->has_welcome());
    stranger.say(a_beat());
    expect_end(stranger);
  }
  expect_that_the_cluster_forms();
}

TEST_F(Handshake, AHelloThatIsGarbageIsRefused) {
  listen_with_token();
  for (const std::string& garbage :
       {std::string("\xff\xff\xff\xff"), std::string(1000, '\0'), std::string("x")}) {
    Stranger stranger(address());
    stranger.say_hello(garbage);
    const auto challenge = stranger.hear();
    ASSERT_TRUE(challenge && challenge->has_challenge());
    stranger.say_proof(
        internal::proof_tag(as_worker_1.security, 'C', garbage, challenge->challenge().nonce()));
    EXPECT_TRUE(is_refused(stranger.hear(), "the hello cannot be read"));
  }
  expect_that_the_cluster_forms();
}

// One who knows the token, or needs none, is believed who he is, but not everything.
TEST_F(Handshake, AHelloThatDoesNotFitIsRefused) {
  listen();
  const auto answer_to = [&](const std::function<void(rpc::Hello&)>& change) {
    rpc::Hello hello;
    EXPECT_TRUE(hello.ParseFromString(internal::make_hello(as_worker_1, kServer)));
    change(hello);
    Stranger stranger(address());
    stranger.say_hello(hello.SerializeAsString());
    stranger.hear();
    stranger.say_proof("");
    return stranger.hear();
  };
  EXPECT_TRUE(is_refused(
      answer_to([](rpc::Hello& hello) { hello.set_protocol(99); }),
      fmt::format("worker:0 speaks version {} of the protocol, the other side 99", internal::kProtocol)));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.mutable_to()->set_index(7); }),
                         "this is worker:0, not worker:7"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.clear_to(); }), "this is worker:0, not :0"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.mutable_from()->set_index(2); }),
                         "worker:2 is no other task of this cluster"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.mutable_from()->set_index(0); }),
                         "worker:0 is no other task of this cluster"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.mutable_from()->set_type("a\nb"); }),
                         "\"a\\x0ab:1\" is no other task of this cluster"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.set_incarnation("short"); }),
                         "a hello without an incarnation"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.set_key_share("short"); }),
                         "a hello without its share of the key"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.clear_key_share(); }),
                         "a hello without its share of the key"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) {
                           for (std::size_t i = 0; i <= internal::kOfferEntries; ++i) {
                             (*hello.mutable_offer())[std::to_string(i)] = "";
                           }
                         }),
                         "the offer of worker:1 has 33 entries: at most 32"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) {
                           (*hello.mutable_offer())["k"] = std::string(internal::kOfferBytes, 'v');
                         }),
                         "the offer of worker:1 has 4097 bytes of keys and values: at most 4096"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) {
                           (*hello.mutable_offer())[std::string(internal::kOfferKeyBytes + 1, 'k')] = "v";
                         }),
                         "of printable text, this has 65"));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { (*hello.mutable_offer())["a\nb"] = "v"; }),
                         "the offer of worker:1 has the key \"a\\x0ab\""));
  EXPECT_TRUE(is_refused(answer_to([](rpc::Hello& hello) { hello.set_cluster("{"); }),
                         "clusters differ: what it sent is no cluster"));
  for (const char* cluster : {"{\"worker\": 1}", "{\"worker\": [[[1]]]}", "{\"worker\": null}", "{}"}) {
    EXPECT_TRUE(is_refused(answer_to([&](rpc::Hello& hello) { hello.set_cluster(cluster); }),
                           "clusters differ: worker:0 is"))
        << cluster;
  }
  // Deep enough to end a parser that calls itself.
  EXPECT_TRUE(is_refused(
      answer_to([](rpc::Hello& hello) { hello.set_cluster("{\"a\":" + std::string(100'000, '[')); }),
      "clusters differ"));
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_TRUE(
      is_refused(answer_to([&](rpc::Hello& hello) { hello.set_cluster("{\"worker\":" + deep + "}"); }),
                 "clusters differ"));
  expect_that_the_cluster_forms();
}

TEST_F(Handshake, ABeatThatIsNoneEndsTheStream) {
  listen();
  const auto end_after = [&](const std::function<void(rpc::Beat&)>& change) {
    Stranger stranger(address());
    const auto welcome = stranger.shake_hands(as_worker_1, kServer);
    EXPECT_TRUE(welcome && welcome->has_welcome());
    rpc::Frame frame = a_beat();
    change(*frame.mutable_beat());
    stranger.say(frame);
    return stranger.end().error_message();
  };
  EXPECT_EQ(end_after([](rpc::Beat& beat) { beat.clear_sightings(); }), "not a beat");
  EXPECT_EQ(end_after([](rpc::Beat& beat) { beat.add_sightings(); }), "not a beat");
  EXPECT_EQ(end_after([](rpc::Beat& beat) { beat.set_phase(7); }), "not a beat");
  EXPECT_EQ(end_after([](rpc::Beat& beat) { beat.mutable_sightings(0)->set_lost(7); }), "not a beat");
  EXPECT_EQ(end_after([](rpc::Beat& beat) { beat.mutable_decision()->set_task(2); }), "not a beat");
  EXPECT_EQ(end_after([](rpc::Beat& beat) { beat.mutable_decision()->set_task(-1); }), "not a beat");
  expect_that_the_cluster_forms();
}

TEST_F(Handshake, AMessageThatIsTooLargeEndsTheStream) {
  listen();
  Stranger stranger(address());
  stranger.say_hello(std::string(internal::kLargestMessage + 1, 'x'));
  EXPECT_EQ(stranger.end().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  expect_that_the_cluster_forms();
}

TEST_F(Handshake, HalfOpenStreamsAreFewAndShort) {
  listen();
  constexpr std::size_t kStreams = internal::kHalfOpenLinks + 6;
  // A connection has at most 64 streams.
  std::list<Stranger> strangers;
  const auto begin = steady_clock::now();
  for (std::size_t i = 0; i < kStreams; ++i) {
    if (i % 35 == 0) {
      strangers.emplace_back(address());
    } else {
      strangers.emplace_back(strangers.back());
    }
    // The answer shows that the server has seen it.
    strangers.back().say_hello("x");
    strangers.back().hear();
  }
  std::size_t at_once = 0;
  std::size_t too_slow = 0;
  for (Stranger& stranger : strangers) {
    const std::string reason = stranger.end().error_message();
    at_once += reason == "too many handshakes at once";
    too_slow += reason == "the handshake took too long";
  }
  EXPECT_EQ(at_once, kStreams - internal::kHalfOpenLinks);
  EXPECT_EQ(too_slow, internal::kHalfOpenLinks);
  const auto took = steady_clock::now() - begin;
  EXPECT_GT(took, internal::kHandshakePatience);
  EXPECT_LT(took, internal::kHandshakePatience + milliseconds(1000));
  expect_that_the_cluster_forms();
}

TEST_F(Handshake, ATaskGetsInWhileStrangersOccupyEveryPlace) {
  listen();
  std::atomic<bool> over = false;
  std::atomic<int> seen = 0;
  std::vector<std::future<void>> crowd;
  for (int i = 0; i < 3; ++i) {
    crowd.push_back(in_thread([&] {
      while (!over) {
        std::list<Stranger> strangers;
        strangers.emplace_back(address());
        for (int stream = 1; stream < internal::kStreamsPerConnection / 2; ++stream) {
          strangers.emplace_back(strangers.back());
        }
        for (Stranger& stranger : strangers) {
          stranger.say_hello("x");
          seen += stranger.hear().has_value();
        }
        for (Stranger& stranger : strangers) stranger.end();
      }
    }));
  }
  EXPECT_TRUE(eventually([&] { return seen > static_cast<int>(internal::kHalfOpenLinks); }));
  EXPECT_LT(expect_that_the_cluster_forms(), milliseconds(1500));
  over = true;
  for (auto& one : crowd) result_of(std::move(one));
}

// In the place of worker:1 sits someone who does not know the token. worker:0 tells it nothing but its hello,
// and believes nothing.
TEST_F(Handshake, AnImpostorLearnsNothingAndStopsNobody) {
  for (const auto first : {rpc::Frame::kWelcome, rpc::Frame::kRefusal, rpc::Frame::kTable}) {
    std::atomic<int> calls = 0;
    std::atomic<int> frames_after_hello = 0;
    {
      const Impostor impostor(workers_.address(1), [&](Impostor::Stream& stream) {
        rpc::Frame frame;
        stream.Read(&frame);
        rpc::Frame answer;
        if (first == rpc::Frame::kWelcome) answer.mutable_welcome();
        if (first == rpc::Frame::kTable) answer.mutable_table();
        if (first == rpc::Frame::kRefusal) answer.mutable_refusal()->set_reason(rpc::Refusal::MISMATCH);
        stream.Write(answer);
        while (stream.Read(&frame)) ++frames_after_hello;
        ++calls;
      });
      if (!server_) listen_with_token();
      EXPECT_TRUE(eventually([&] { return calls >= 2; }));
    }
    EXPECT_EQ(frames_after_hello, 0);
  }
  expect_that_the_cluster_forms();
}

}  // namespace
}  // namespace tandem::testing_support
