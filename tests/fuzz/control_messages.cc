// Any bytes as what a task of three hears: frames of others, with links that break and time that passes in
// between. The membership core never starts without the others, never names a task that there is not, and
// never changes its mind; a hello is let in only if it fits, or refused with one line.
//
// The input is a row of records: a byte that says what comes, from whom, from which of its processes and
// after what time; then, for a frame, its length in two bytes (the lower one first) and the frame; else one
// byte.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "cluster/membership_core.h"
#include "fuzz/require.h"
#include "rpc/beat_codec.h"
#include "rpc/control.pb.h"
#include "rpc/handshake.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

constexpr int kTasks = 3;
constexpr int kSelf = 1;
constexpr int kOptional = 2;
constexpr Incarnation kOwn{.high = 1, .low = 2};

bool is_needed(int task) {
  return task != kOptional;
}

// Which of its processes speaks for a task; the third is none.
Incarnation incarnation_of_process(int task, unsigned process) {
  if (process == 2) return {};
  return {.high = 10 + static_cast<std::uint64_t>(task), .low = 1 + process};
}

class Task {
 public:
  void hear(int from, unsigned process, const rpc::Beat& message) {
    const auto beat = decode(message, kTasks, from, incarnation_of_process(from, process));
    if (!beat) return;
    ++beats_;
    if (beat->incarnation) heard_[static_cast<std::size_t>(from)].insert(beat->incarnation);
    check(core_.on_beat(now_, *beat));
  }

  void notice(int task, unsigned what) {
    switch (what % 8) {
      case 0:
      case 1:
        return check(core_.on_tick(now_));
      case 2:
        return check(core_.on_link_lost(now_, task));
      case 3:
        return check(core_.on_probe(now_, task, ProbeResult::kRefused));
      case 4:
        return check(core_.on_probe(now_, task, ProbeResult::kAnswered));
      case 5:
        return check(core_.on_probe(now_, task, ProbeResult::kSilent));
      case 6:
        return check(core_.finish(now_));
      default:
        return check(core_.leave(now_));
    }
  }

  void wait(Time time) { now_ += time; }
  int beats() const { return beats_; }

 private:
  void check(const MembershipCore::Actions& actions) {
    for (const Action& action : actions) {
      switch (action.kind) {
        case Action::Kind::kProbe:
        case Action::Kind::kSuspect:
        case Action::Kind::kHeardAgain:
        case Action::Kind::kTurnedAway:
          require(action.task >= 0 && action.task < kTasks && action.task != kSelf, "another task is named");
          break;
        case Action::Kind::kGone:
          require(action.task >= 0 && action.task < kTasks, "a task is named");
          break;
        case Action::Kind::kStart:
          check_start(*action.view);
          break;
        case Action::Kind::kStop:
          require(action.loss && action.loss->task >= 0 && action.loss->task < kTasks,
                  "a lost task is named");
          require(action.loss->evidence != Evidence::kNone, "a loss has evidence");
          break;
        default:
          break;
      }
    }
    check_state();
  }

  void check_start(const View& view) {
    require(!std::exchange(started_, true), "a task starts once");
    for (int task = 0; task < kTasks; ++task) {
      if (!is_needed(task) || task == kSelf) continue;
      const auto index = static_cast<std::size_t>(task);
      require(heard_[index].contains(view.members[index]), "it starts with processes that it has heard");
    }
    require(view.members[kSelf] == kOwn, "it starts with itself");
  }

  void check_state() {
    const Phase phase = core_.phase();
    require(phase != Phase::kAbsent, "a task is not absent to itself");
    require(started_ || (phase != Phase::kRunning && phase != Phase::kDone), "only who has started runs");
    require(!decision_ || decision_ == core_.decision(), "a decision is final");
    decision_ = core_.decision();
    require(!decision_ || phase == Phase::kStopped, "who knows of a decision has stopped");
    core_.missing(now_);
    core_.all_know(now_);
    rpc::Beat message;
    encode(core_.beat(now_), message);
    const auto again = decode(message, kTasks, kSelf, kOwn);
    require(again && again->phase == phase && again->decision == decision_, "a beat reads back the same");
  }

  Time now_{1000};
  MembershipCore core_{
      {.tasks = {{}, {}, {.needed = false, .trains = false}}, .self = kSelf, .incarnation = kOwn}, now_};
  std::array<std::set<Incarnation>, kTasks> heard_;
  std::optional<Loss> decision_;
  bool started_ = false;
  int beats_ = 0;
};

// Whether it is let in.
bool check_hello(const std::string& bytes) {
  rpc::Hello hello;
  if (!hello.ParseFromString(bytes)) return false;
  static const Identity self{
      .cluster = ClusterSpec({{"worker", {"localhost:1", "localhost:2"}}, {"evaluator", {"localhost:3"}}}),
      .task = TaskId{"worker", kSelf},
      .incarnation = kOwn,
      .program = {{"batch_size", "128"}}};
  static const Identity with_tls = [] {
    Identity identity = self;
    identity.security.mode = Security::Mode::kTls;
    return identity;
  }();
  static const std::string certified = certified_uri(self.cluster, TaskId{"worker", 0});
  const auto check_refusal = [](const rpc::Refusal& refusal) {
    const std::string& line = refusal.message();
    require(line.find_first_of("\n\r\t") == std::string::npos, "a refusal is one line");
    require(line.size() < 4096, "a refusal is short");
    rpc::Refusal again;
    require(again.ParseFromString(refusal.SerializeAsString()), "a refusal arrives");
  };
  const auto refusal = judge(self, hello, {});
  if (refusal) check_refusal(*refusal);
  const auto tls_refusal = judge(with_tls, hello, {certified});
  if (tls_refusal) check_refusal(*tls_refusal);
  require(!refusal || tls_refusal, "a certificate lets nobody in who would not be without");
  const bool is_worker_0 = hello.has_from() && hello.from().type() == "worker" && hello.from().index() == 0;
  require(tls_refusal || is_worker_0, "a certificate lets its owner in, and nobody else");
  if (refusal) return false;
  require(!hello.has_from() || incarnation_of(hello.incarnation()),
          "a task that is let in has an incarnation");
  require(!hello.has_from() || fault_of(offer_in(hello).entries).empty(),
          "a task that is let in offers no more than it may");
  require(!hello.has_from() || hello.key_share().size() == kNonceBytes,
          "a task that is let in has a share of the key");
  require(!hello.has_from() || is_worker_0 || hello.from().type() == "evaluator", "only tasks are let in");
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const google::protobuf::LogSilencer no_lines_about_wrong_utf8;
  constexpr std::array kWaits{Time(0), Time(100), Time(700), Time(6000)};
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto next = [&rest] {
    const unsigned byte = rest.empty() ? 0 : static_cast<std::uint8_t>(rest.front());
    rest.remove_prefix(rest.empty() ? 0 : 1);
    return byte;
  };
  Task task;
  bool accepted = false;
  while (!rest.empty()) {
    const unsigned head = next();
    const int from = (head >> 2 & 3) % kTasks;
    const unsigned process = head >> 4 & 3;
    task.wait(kWaits[head >> 6]);
    if ((head & 3) == 3) {
      task.notice(from, next());
      continue;
    }
    const unsigned low = next();
    const unsigned high = next();
    const std::size_t length = std::min<std::size_t>(low | high << 8, rest.size());
    rpc::Frame frame;
    const bool parsed = frame.ParseFromArray(rest.data(), static_cast<int>(length));
    rest.remove_prefix(length);
    if (!parsed) continue;
    if (frame.has_beat()) task.hear(from, process, frame.beat());
    if (frame.has_hello()) accepted |= check_hello(frame.hello());
  }
  return accepted || task.beats() > 0 ? 0 : -1;
}
