#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::internal {

// Who is in the run, who is alive, and the one decision to stop that all survivors reach.
//
// A pure state machine: events go in, actions come out; it has no socket, no clock and no thread, so that a
// simulator can run thousands of schedules through it. Every task runs the same one; none is special.
//
// There is one message, the Beat, and it carries the sender's whole state. A beat that is lost, doubled or
// late therefore does no harm: the next one says everything again. Beats go to every task every 100 ms, and
// at once when something changed.
//
// Start: a task is *ready* once it hears every task that the run needs and each of them hears it; it then
// says with which processes (incarnations) it would start: its view. It starts when all are ready with the
// same view, or as soon as it hears that another one did: that one has seen that all are ready.
//
// Loss: a link that breaks is probed. Refused: the process is dead. A new incarnation: it restarted. The same
// one: only the link broke. Silence makes a task suspect; if nobody else hears it either, it is unreachable.
//
// The stop: the lowest task that is still there decides which loss to name; the others pass its decision on.
// If it says nothing, the next one takes over.

using Time = std::chrono::milliseconds;  // of a monotonic clock with any origin

// One start of a process: 128 random bits. All zero: none known.
struct Incarnation {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  explicit operator bool() const { return high != 0 || low != 0; }
  friend auto operator<=>(const Incarnation&, const Incarnation&) = default;
};

enum class Phase : std::uint8_t {
  kAbsent,   // never seen
  kJoining,  // some task is missing yet
  kReady,    // hears all and is heard by all
  kRunning,
  kDone,     // its part of the work is done; its going is no loss
  kLeft,     // goes before the end, and says so
  kStopped,  // knows of the decision to stop
};

// Why a task counts as lost.
enum class Evidence : std::uint8_t {
  kNone,
  kDead,         // its link broke, and its port refuses: the process is gone
  kRestarted,    // another process answers at its address
  kUnreachable,  // silent to this task, and to the others that were asked
  kLink,         // others hear it, but two tasks of the run do not hear each other
  kLeft,         // it said so itself
  kStalled,      // this process was stopped for so long that the others ended without it
};

// The loss that stops a run. Equal on every task that stops.
struct Loss {
  int task = -1;
  Incarnation incarnation = {};
  Evidence evidence = Evidence::kNone;
  std::int64_t step = 0;  // that the deciding task had reached
  int decided_by = -1;

  friend bool operator==(const Loss&, const Loss&) = default;
};

// What the sender of a beat knows of one task.
struct Sighting {
  Incarnation incarnation = {};
  Phase phase = Phase::kAbsent;
  Evidence lost = Evidence::kNone;
  Time silence = Time::max();  // since its last beat; max: none yet
};

struct Beat {
  int from = -1;
  Incarnation incarnation = {};
  std::uint64_t sequence = 0;    // an older one than the last is dropped
  std::uint64_t generation = 0;  // of the view it runs in; 0 before the first
  std::uint64_t abandoned = 0;   // the highest generation that it was ready for and took back
  Phase phase = Phase::kJoining;
  std::uint64_t view = 0;  // digest of the incarnations it is ready for or runs with
  std::int64_t step = 0;
  double examples_per_second = 0;
  std::uint64_t rounds = 0;              // trainings that the task has been through
  std::vector<Sighting> sightings = {};  // by task
  std::optional<Loss> decision = {};
};

// The processes that start together. Members are in the order of the tasks; a task that the run does not need
// has no incarnation here.
struct View {
  std::uint64_t generation = 0;
  std::vector<Incarnation> members = {};

  std::uint64_t digest() const;
  friend bool operator==(const View&, const View&) = default;
};

enum class ProbeResult : std::uint8_t { kRefused, kAnswered, kSilent };

// What the surroundings must do.
struct Action {
  enum class Kind : std::uint8_t {
    kBeat,         // send beat() to every task
    kProbe,        // try a plain connection to `task`, report with on_probe()
    kStart,        // the program may begin; `view`
    kStop,         // the program must end; `loss`
    kFinished,     // every training task is done
    kJoinTimeout,  // not all came in time
    kGone,         // notice: `task` was here and is gone, before the start or without need; `evidence`
    kSuspect,      // notice: silent for `duration`
    kHeardAgain,   // notice: no longer suspect, or its link stands again
    kStalled,      // notice: this process itself stood still for `duration`
    kTurnedAway,   // notice: another process of `task`, which has already finished or left
  };
  Kind kind;
  int task = -1;
  Evidence evidence = Evidence::kNone;
  Time duration = {};
  std::optional<Loss> loss = {};
  std::optional<View> view = {};
};

struct MembershipOptions {
  struct Task {
    bool needed = true;  // the start waits for it, and its loss stops the run
    bool trains = true;  // the run is done when all of these are
  };
  std::vector<Task> tasks = {};
  int self = 0;
  Incarnation incarnation = {};

  Time beat_interval{100};
  // A task is suspect after four times the longest usual gap between its beats, within these.
  Time suspect_after_least{600};
  Time suspect_after_most{5000};
  // How long the others are asked about a suspect.
  Time ask_for{250};
  // A beat of our own that is this late means that we stood still: what we did not hear meanwhile is no
  // evidence.
  Time stall{200};
  // After that: how long to listen for what the others decided meanwhile, before deciding anything.
  Time listen_after_stall{300};
  // How long two tasks may fail to hear each other while others hear both.
  Time link_patience{5000};
  // Between a loss and the decision of the next task in line, if the one before it says nothing.
  Time take_over{150};
  Time join_timeout{std::chrono::minutes(10)};
};

// Of the last 1000 gaps between two beats of a task: how long it may be silent before that means something.
class GapWindow {
 public:
  void add(Time gap);
  // The 99.9th percentile; zero without gaps.
  Time usual_longest() const;

 private:
  std::vector<std::int32_t> gaps_;
  std::size_t next_ = 0;
};

class MembershipCore {
 public:
  using Actions = std::vector<Action>;

  MembershipCore(MembershipOptions options, Time now);

  // Call about every beat_interval.
  Actions on_tick(Time now);
  Actions on_beat(Time now, const Beat& beat);
  // A link from or to the task broke.
  Actions on_link_lost(Time now, int task);
  Actions on_probe(Time now, int task, ProbeResult result);

  // From the program of this task.
  void set_progress(std::int64_t step, double examples_per_second);
  void set_rounds(std::uint64_t rounds) { rounds_ = rounds; }
  Actions finish(Time now);
  Actions leave(Time now);

  Beat beat(Time now);

  Phase phase() const { return phase_; }
  const std::optional<Loss>& decision() const { return decision_; }
  // That this task was last ready for, or runs with. Its members are processes that this task has heard.
  const View& view() const { return view_; }
  // The tasks that the start still waits for: not heard, or they do not hear us.
  std::vector<int> missing(Time now) const;
  // Whether its link broke and it is not known yet why.
  bool in_doubt(int task) const;
  // Whether every task that is still there knows that we are done, have left or stop.
  bool all_know(Time now) const;
  // The last beat of a task, if there was one.
  const std::optional<Beat>& last_beat(int task) const {
    return peers_.at(static_cast<std::size_t>(task)).last;
  }
  Sighting sighting(Time now, int task) const;

 private:
  struct Peer {
    std::optional<Beat> last = {};
    Incarnation incarnation = {};
    std::vector<Incarnation> former = {};  // whose late beats mean nothing
    Incarnation successor = {};            // another process that answers at its address during the run
    Phase phase = Phase::kAbsent;
    Time heard = {};
    bool heard_since_stall = true;
    GapWindow gaps = {};
    std::optional<Time> suspect_since = {};
    bool link_broken = false;
    bool port_answered = false;  // to a probe since then
    Evidence lost = Evidence::kNone;
    Time lost_at = {};
    std::uint64_t lost_order = 0;  // which loss we learned of first
  };

  int tasks() const { return static_cast<int>(peers_.size()); }
  Peer& peer(int task) { return peers_[static_cast<std::size_t>(task)]; }
  const Peer& peer(int task) const { return peers_[static_cast<std::size_t>(task)]; }
  bool needed(int task) const { return options_.tasks[static_cast<std::size_t>(task)].needed; }
  bool is_peer(int task) const { return task >= 0 && task < tasks() && task != options_.self; }
  bool joining() const { return phase_ == Phase::kJoining || phase_ == Phase::kReady; }
  bool in_run() const { return phase_ == Phase::kRunning || phase_ == Phase::kDone; }
  bool silent(Time now, const Peer& peer) const;
  bool heard_lately(Time now, const Peer& peer) const;
  bool can_start_with(Time now, int task) const;

  void notice_stall(Time now, Actions& actions);
  bool recognise(Time now, int task, const Beat& beat, Actions& actions);
  void hear(Time now, int task, const Beat& beat, Actions& actions);
  void learn(Time now, const Beat& beat, Actions& actions);
  void forget(Peer& peer);
  Actions advance(Time now, Actions actions);
  void join(Time now, Actions& actions);
  void start(Actions& actions);
  void watch(Time now, int task, Actions& actions);
  bool others_hear(Time now, int task, Time since) const;
  int with_fewer_links(Time now, int task) const;
  void lose(Time now, int task, Evidence evidence, Actions& actions);
  void stop(const Loss& loss, Actions& actions);
  void decide(Time now, Actions& actions);
  void end(Actions& actions);

  MembershipOptions options_;
  Phase phase_ = Phase::kJoining;
  std::vector<Peer> peers_;
  std::uint64_t sequence_ = 0;
  std::uint64_t losses_ = 0;
  View view_;  // that we are ready for or run with
  std::uint64_t abandoned_ = 0;
  std::optional<Loss> decision_;
  std::int64_t step_ = 0;
  double examples_per_second_ = 0;
  std::uint64_t rounds_ = 0;
  bool finished_ = false;
  bool timed_out_ = false;
  Time join_deadline_;
  Time last_tick_;
  std::optional<Time> listening_until_;  // having stood still
  bool maybe_left_out_ = false;          // for so long that the others will have noticed
};

}  // namespace tandem::internal
