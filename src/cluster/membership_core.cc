#include "cluster/membership_core.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace tandem::internal {
namespace {

constexpr std::size_t kGapsKept = 1000;

bool has_ended(Phase phase) {
  return phase == Phase::kDone || phase == Phase::kLeft || phase == Phase::kStopped;
}

}  // namespace

std::uint64_t View::digest() const {
  std::uint64_t digest = mix(generation + kCounterStep);
  for (const auto& member : members) digest = mix(mix(digest ^ member.high) + member.low + kCounterStep);
  return digest;
}

void GapWindow::add(Time gap) {
  const auto milliseconds = static_cast<std::int32_t>(std::clamp<std::int64_t>(gap.count(), 0, 1'000'000));
  if (gaps_.size() < kGapsKept) {
    gaps_.push_back(milliseconds);
    return;
  }
  gaps_[next_] = milliseconds;
  next_ = (next_ + 1) % kGapsKept;
}

Time GapWindow::usual_longest() const {
  // Of 1000 gaps the 99.9th percentile is the second longest; of fewer, the longest.
  std::int32_t longest = 0;
  std::int32_t second = 0;
  for (const auto gap : gaps_) {
    if (gap > longest) {
      second = std::exchange(longest, gap);
    } else if (gap > second) {
      second = gap;
    }
  }
  return Time(gaps_.size() < kGapsKept ? longest : second);
}

MembershipCore::MembershipCore(MembershipOptions options, Time now)
    : options_(std::move(options)),
      peers_(options_.tasks.size()),
      join_deadline_(now + options_.join_timeout),
      last_tick_(now) {
  view_.members.resize(options_.tasks.size());
  peer(options_.self).incarnation = options_.incarnation;
}

MembershipCore::Actions MembershipCore::on_tick(Time now) {
  Actions actions;
  notice_stall(now, actions);
  last_tick_ = now;
  actions.push_back({.kind = Action::Kind::kBeat});
  for (int task = 0; task < tasks(); ++task) {
    if (is_peer(task) && in_doubt(task)) {
      actions.push_back({.kind = Action::Kind::kProbe, .task = task});
    }
  }
  if (joining() && now >= join_deadline_ && !timed_out_) {
    timed_out_ = true;
    actions.push_back({.kind = Action::Kind::kJoinTimeout});
  }
  return advance(now, std::move(actions));
}

// A process that was stopped hears nothing meanwhile. What it then finds says more about itself than about
// others.
void MembershipCore::notice_stall(Time now, Actions& actions) {
  const Time late = now - last_tick_ - options_.beat_interval;
  if (late <= options_.stall) return;
  last_tick_ = now;
  actions.push_back({.kind = Action::Kind::kStalled, .duration = late});
  for (auto& peer : peers_) {
    if (peer.phase == Phase::kAbsent) continue;
    peer.heard = now;
    peer.heard_since_stall = false;
    peer.suspect_since.reset();
  }
  if (!in_run() && phase_ != Phase::kReady) return;  // the others may have started on our word
  listening_until_ = now + options_.listen_after_stall;
  maybe_left_out_ |= late > options_.suspect_after_least;
}

MembershipCore::Actions MembershipCore::on_beat(Time now, const Beat& beat) {
  Actions actions;
  notice_stall(now, actions);
  const bool well_formed = is_peer(beat.from) && beat.incarnation &&
                           beat.sightings.size() == options_.tasks.size() && beat.phase != Phase::kAbsent &&
                           (!beat.decision || (beat.decision->task >= 0 && beat.decision->task < tasks() &&
                                               beat.decision->evidence != Evidence::kNone));
  if (well_formed && recognise(now, beat.from, beat, actions)) {
    hear(now, beat.from, beat, actions);
    learn(now, beat, actions);
  }
  return advance(now, std::move(actions));
}

// Whether the beat is from the process that we take for this task, and news.
bool MembershipCore::recognise(Time now, int task, const Beat& beat, Actions& actions) {
  Peer& known = peer(task);
  if (known.incarnation == beat.incarnation) {
    return !known.last || known.last->sequence < beat.sequence;
  }
  if (!known.incarnation) return true;
  const bool was_former = std::ranges::find(known.former, beat.incarnation) != known.former.end();
  if (!needed(task) && known.lost != Evidence::kNone && !was_former) {
    forget(known);
    return true;
  }
  if (in_run() && needed(options_.self)) {
    if (was_former || known.lost != Evidence::kNone) return false;
    if (has_ended(known.phase)) {
      if (known.successor != beat.incarnation) {
        actions.push_back({.kind = Action::Kind::kTurnedAway, .task = task});
      }
    }
    known.successor = beat.incarnation;  // watch() decides what that means
    return false;
  }
  // Before the start a task may come again; a beat of its former process is only late, unless the present one
  // is gone.
  if (was_former && heard_lately(now, known) && !known.link_broken) return false;
  forget(known);
  return true;
}

void MembershipCore::forget(Peer& peer) {
  auto former = std::move(peer.former);
  if (peer.incarnation) former.push_back(peer.incarnation);
  peer = Peer{.former = std::move(former)};
}

void MembershipCore::hear(Time now, int task, const Beat& beat, Actions& actions) {
  Peer& known = peer(task);
  if (known.phase != Phase::kAbsent && known.heard_since_stall) known.gaps.add(now - known.heard);
  // A beat that was under way when the link broke proves nothing; one after the port has answered does.
  const bool link_stands = !known.link_broken || known.port_answered;
  if (link_stands && (known.suspect_since || known.link_broken)) {
    actions.push_back({.kind = Action::Kind::kHeardAgain, .task = task});
  }
  known.incarnation = beat.incarnation;
  known.heard = now;
  known.heard_since_stall = true;
  known.suspect_since.reset();
  if (link_stands) known.link_broken = false;
  known.phase = beat.phase;
  known.last = beat;
}

// What the beat says about third tasks, and about the end.
void MembershipCore::learn(Time now, const Beat& beat, Actions& actions) {
  const bool same_view = view_.generation != 0 && beat.view == view_.digest();
  if (beat.decision && !decision_) {
    const bool ours = same_view && (in_run() || phase_ == Phase::kReady);
    const bool onlooker = in_run() && !needed(options_.self) && needed(beat.from);
    if (ours || onlooker) stop(*beat.decision, actions);
  }
  if (!in_run() || !same_view) return;
  if (beat.phase == Phase::kLeft) lose(now, beat.from, Evidence::kLeft, actions);
  for (int task = 0; task < tasks(); ++task) {
    const auto evidence = beat.sightings[static_cast<std::size_t>(task)].lost;
    // That a task is silent counts only if it is so here too; the rest is certain.
    const bool silent_here = now - peer(task).heard > options_.suspect_after_least;
    const bool certain = evidence == Evidence::kDead || evidence == Evidence::kRestarted ||
                         evidence == Evidence::kLeft || evidence == Evidence::kLink ||
                         (evidence == Evidence::kUnreachable && silent_here);
    if (certain) lose(now, task, evidence, actions);
  }
}

MembershipCore::Actions MembershipCore::on_link_lost(Time now, int task) {
  Actions actions;
  notice_stall(now, actions);
  if (is_peer(task) && peer(task).phase != Phase::kAbsent) {
    Peer& known = peer(task);
    known.link_broken = true;
    known.port_answered = false;
    if (!has_ended(known.phase) && known.lost == Evidence::kNone)
      actions.push_back({.kind = Action::Kind::kProbe, .task = task});
  }
  return advance(now, std::move(actions));
}

MembershipCore::Actions MembershipCore::on_probe(Time now, int task, ProbeResult result) {
  Actions actions;
  notice_stall(now, actions);
  if (is_peer(task) && result == ProbeResult::kAnswered) peer(task).port_answered = true;
  if (is_peer(task) && result == ProbeResult::kRefused) {
    Peer& known = peer(task);
    const bool in_doubt = known.link_broken || known.suspect_since;
    if (in_doubt && known.lost == Evidence::kNone && !has_ended(known.phase)) {
      lose(now, task, Evidence::kDead, actions);
    }
  }
  return advance(now, std::move(actions));
}

void MembershipCore::set_progress(std::int64_t step, double examples_per_second) {
  step_ = step;
  examples_per_second_ = examples_per_second;
}

MembershipCore::Actions MembershipCore::finish(Time now) {
  if (!joining() && phase_ != Phase::kRunning) return {};
  phase_ = in_run() ? Phase::kDone : Phase::kLeft;
  return advance(now, {{.kind = Action::Kind::kBeat}});
}

MembershipCore::Actions MembershipCore::leave(Time now) {
  if (!joining() && phase_ != Phase::kRunning) return {};
  phase_ = Phase::kLeft;
  return advance(now, {{.kind = Action::Kind::kBeat}});
}

Beat MembershipCore::beat(Time now) {
  Beat beat{.from = options_.self,
            .incarnation = options_.incarnation,
            .sequence = ++sequence_,
            .generation = in_run() ? view_.generation : 0,
            .abandoned = abandoned_,
            .phase = phase_,
            .view = view_.generation == 0 ? 0 : view_.digest(),
            .step = step_,
            .examples_per_second = examples_per_second_,
            .rounds = rounds_,
            .decision = decision_};
  beat.sightings.reserve(peers_.size());
  for (int task = 0; task < tasks(); ++task) beat.sightings.push_back(sighting(now, task));
  return beat;
}

Sighting MembershipCore::sighting(Time now, int task) const {
  const Peer& known = peer(task);
  if (task == options_.self) {
    return {.incarnation = options_.incarnation, .phase = phase_, .lost = known.lost, .silence = Time(0)};
  }
  return {.incarnation = known.incarnation,
          .phase = known.phase,
          .lost = known.lost,
          .silence = known.phase == Phase::kAbsent ? Time::max() : now - known.heard};
}

bool MembershipCore::silent(Time now, const Peer& peer) const {
  const Time silence = now - peer.heard;
  if (silence <= options_.suspect_after_least) return false;  // by far the usual case, and a cheap one
  return silence > std::min(4 * peer.gaps.usual_longest(), options_.suspect_after_most);
}

bool MembershipCore::heard_lately(Time now, const Peer& peer) const {
  return peer.phase != Phase::kAbsent && !silent(now, peer);
}

// Whether we hear the task, it hears us, and it is not in a run that began without us.
bool MembershipCore::can_start_with(Time now, int task) const {
  const Peer& known = peer(task);
  if (!heard_lately(now, known) || known.link_broken) return false;
  if (known.last->sightings[static_cast<std::size_t>(options_.self)].incarnation != options_.incarnation)
    return false;
  return known.phase == Phase::kJoining || known.phase == Phase::kReady;
}

std::vector<int> MembershipCore::missing(Time now) const {
  std::vector<int> missing;
  for (int task = 0; task < tasks(); ++task) {
    if (is_peer(task) && needed(task) && !can_start_with(now, task)) missing.push_back(task);
  }
  return missing;
}

bool MembershipCore::in_doubt(int task) const {
  const Peer& known = peer(task);
  return known.link_broken && known.lost == Evidence::kNone && !has_ended(known.phase);
}

bool MembershipCore::all_know(Time now) const {
  for (int task = 0; task < tasks(); ++task) {
    const Peer& known = peer(task);
    // One that is done still watches those that are not.
    const bool there = is_peer(task) && heard_lately(now, known) && !known.link_broken &&
                       known.lost == Evidence::kNone && known.phase != Phase::kLeft &&
                       known.phase != Phase::kStopped;
    if (there && known.last->sightings[static_cast<std::size_t>(options_.self)].phase != phase_) return false;
  }
  return true;
}

MembershipCore::Actions MembershipCore::advance(Time now, Actions actions) {
  if (joining()) join(now, actions);
  if (listening_until_ && now >= *listening_until_ && losses_ == 0) {
    listening_until_.reset();
    maybe_left_out_ = false;  // nobody thinks so
  }
  if (in_run() && !finished_) end(actions);
  if (in_run() && !finished_) {
    for (int task = 0; task < tasks(); ++task) {
      if (is_peer(task)) watch(now, task, actions);
    }
    decide(now, actions);
  }
  return actions;
}

void MembershipCore::join(Time now, Actions& actions) {
  if (!needed(options_.self)) {  // nobody waits for this task, and it waits for nobody
    view_.generation = 1;
    return start(actions);
  }
  // Another may have started with a view that we took back: no generation is used for two.
  View view{.generation = abandoned_ + 1, .members = std::vector<Incarnation>(peers_.size())};
  bool all_here = true;
  bool all_ready = true;
  bool one_runs = false;
  const std::uint64_t ready_for = phase_ == Phase::kReady ? view_.digest() : 0;
  for (int task = 0; task < tasks(); ++task) {
    if (!needed(task)) continue;
    const Peer& known = peer(task);
    view.members[static_cast<std::size_t>(task)] = known.incarnation;
    if (task == options_.self) continue;
    if (known.last) view.generation = std::max(view.generation, known.last->abandoned + 1);
    all_here &= can_start_with(now, task);
    const bool same_view = known.last && known.last->view == ready_for && ready_for != 0;
    all_ready &= same_view && known.phase == Phase::kReady;
    one_runs |= same_view && (known.phase == Phase::kRunning || known.phase == Phase::kDone);
  }
  // Having said "ready" binds us to that view while its processes live: another task may have started on our
  // word.
  if (phase_ == Phase::kReady && (one_runs || (all_here && all_ready))) return start(actions);
  if (phase_ == Phase::kReady && view != view_) {
    phase_ = Phase::kJoining;
    abandoned_ = std::max(abandoned_, view_.generation);
    view.generation = std::max(view.generation, abandoned_ + 1);
    actions.push_back({.kind = Action::Kind::kBeat});
  }
  if (phase_ == Phase::kJoining && all_here) {
    phase_ = Phase::kReady;
    view_ = view;
    actions.push_back({.kind = Action::Kind::kBeat});
    join(now, actions);  // alone, or the last to come: nothing more to hear
  }
}

void MembershipCore::start(Actions& actions) {
  phase_ = Phase::kRunning;
  actions.push_back({.kind = Action::Kind::kBeat});
  actions.push_back({.kind = Action::Kind::kStart, .view = view_});
}

void MembershipCore::watch(Time now, int task, Actions& actions) {
  Peer& known = peer(task);
  if (known.phase == Phase::kAbsent || has_ended(known.phase) || known.lost != Evidence::kNone) return;
  const Time silence = now - known.heard;
  // A late beat of a former process can look like a successor; the real one's predecessor is silent.
  if (known.successor && (known.link_broken || silence > 3 * options_.beat_interval)) {
    return lose(now, task, Evidence::kRestarted, actions);
  }
  if (!silent(now, known)) return;
  if (!known.suspect_since) {
    known.suspect_since = now;
    actions.push_back({.kind = Action::Kind::kSuspect, .task = task, .duration = silence});
    actions.push_back({.kind = Action::Kind::kProbe, .task = task});
    actions.push_back({.kind = Action::Kind::kBeat});
    return;
  }
  const Time suspect_for = now - *known.suspect_since;
  if (suspect_for < options_.ask_for) return;
  if (!others_hear(now, task, *known.suspect_since)) {
    lose(now, task, Evidence::kUnreachable, actions);
  } else if (suspect_for >= options_.link_patience) {
    lose(now, with_fewer_links(now, task), Evidence::kLink, actions);
  }
}

// Whether some other task has heard this one since then, and still does.
bool MembershipCore::others_hear(Time now, int task, Time since) const {
  for (int other = 0; other < tasks(); ++other) {
    if (!is_peer(other) || other == task) continue;
    const Peer& known = peer(other);
    if (!heard_lately(now, known) || known.lost != Evidence::kNone || !known.last) continue;
    const Time silence = known.last->sightings[static_cast<std::size_t>(task)].silence;
    if (silence > options_.suspect_after_least) continue;
    const Time heard_at = known.heard - silence;
    if (heard_at > since && now - heard_at <= options_.suspect_after_least) return true;
  }
  return false;
}

// Of us and the task: the one that fewer of the others hear; of equals the later one.
int MembershipCore::with_fewer_links(Time now, int task) const {
  const auto links_of = [&](int which) {
    int links = 0;
    for (int other = 0; other < tasks(); ++other) {
      if (!is_peer(other) || other == task || !heard_lately(now, peer(other))) continue;
      links += peer(other).last->sightings[static_cast<std::size_t>(which)].silence <=
               options_.suspect_after_least;
    }
    return links;
  };
  const int ours = links_of(options_.self);
  const int theirs = links_of(task);
  if (ours != theirs) return ours < theirs ? options_.self : task;
  return std::max(options_.self, task);
}

void MembershipCore::lose(Time now, int task, Evidence evidence, Actions& actions) {
  Peer& known = peer(task);
  if (known.lost != Evidence::kNone) return;
  // Left is an end too, but one before the work was done.
  if (task != options_.self && has_ended(known.phase) && evidence != Evidence::kLeft) return;
  if (!in_run() || !needed(task)) {
    actions.push_back({.kind = Action::Kind::kGone, .task = task, .evidence = evidence});
    if (task == options_.self) return;
    if (evidence == Evidence::kLeft && in_run()) {
      known.lost = evidence;  // it goes on saying so for a moment
    } else {
      forget(known);
    }
    return;
  }
  known.lost = evidence;
  known.lost_at = now;
  known.lost_order = ++losses_;
  actions.push_back({.kind = Action::Kind::kBeat});
}

void MembershipCore::stop(const Loss& loss, Actions& actions) {
  decision_ = loss;
  phase_ = Phase::kStopped;
  actions.push_back({.kind = Action::Kind::kBeat});
  actions.push_back({.kind = Action::Kind::kStop, .loss = loss});
}

void MembershipCore::decide(Time now, Actions& actions) {
  if (losses_ == 0 || !needed(options_.self)) return;
  int first = -1;
  int before_us = 0;
  bool anyone_heard = false;
  for (int task = 0; task < tasks(); ++task) {
    const Peer& known = peer(task);
    if (known.lost != Evidence::kNone) {
      if (first < 0 || known.lost_order < peer(first).lost_order) first = task;
      continue;
    }
    if (!is_peer(task) || !needed(task) || !heard_lately(now, known)) continue;
    if (known.link_broken && has_ended(known.phase)) continue;
    anyone_heard |= known.heard_since_stall && !known.link_broken;
    before_us += task < options_.self;
  }
  if (listening_until_) {
    if (now < *listening_until_) return;
    listening_until_.reset();
    if (std::exchange(maybe_left_out_, false) && !anyone_heard) {
      return stop({.task = options_.self,
                   .incarnation = options_.incarnation,
                   .evidence = Evidence::kStalled,
                   .step = step_,
                   .decided_by = options_.self},
                  actions);
    }
  }
  // A task that is itself lost to the others leaves the decision to them, and takes over last.
  if (peer(options_.self).lost != Evidence::kNone) before_us = tasks();
  if (now < peer(first).lost_at + before_us * options_.take_over) return;
  stop({.task = first,
        .incarnation = peer(first).incarnation,
        .evidence = peer(first).lost,
        .step = step_,
        .decided_by = options_.self},
       actions);
}

void MembershipCore::end(Actions& actions) {
  for (int task = 0; task < tasks(); ++task) {
    if (!options_.tasks[static_cast<std::size_t>(task)].trains) continue;
    const Phase phase = task == options_.self ? phase_ : peer(task).phase;
    if (phase != Phase::kDone) return;
  }
  finished_ = true;
  phase_ = Phase::kDone;  // also of a task that only served the others
  actions.push_back({.kind = Action::Kind::kBeat});
  actions.push_back({.kind = Action::Kind::kFinished});
}

}  // namespace tandem::internal
