#include "membership/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::testing_support {

using internal::Action;
using internal::Evidence;
using internal::Incarnation;
using internal::Loss;
using internal::MembershipCore;
using internal::MembershipOptions;
using internal::Phase;
using internal::ProbeResult;
using internal::View;

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFaultsEnd{5000};
constexpr milliseconds kSettled{2500};      // after the last fault: 0.85 s to notice, 20 beats to agree
constexpr milliseconds kSettledSlow{6500};  // the same where long gaps were seen and silence means less
constexpr milliseconds kWorkEnds{3500};
constexpr milliseconds kLinger{500};

}  // namespace

Simulator::Simulator(std::uint64_t seed, Faults faults, const std::function<void(MembershipOptions&)>& change)
    : faults_(faults), change_(change), random_(seed) {
  const auto tasks = static_cast<std::size_t>(2 + random_() % 4);
  nodes_.resize(tasks);
  roles_.resize(tasks);
  // Sometimes the last one is a parameter server, or an evaluator that nobody waits for.
  if (tasks > 2 && chance(0.3)) roles_.back() = {.needed = chance(0.5), .trains = false};
}

std::string Simulator::run() {
  plan();
  // What is left in the queue after this only repeats: ticks and beats.
  const Time end =
      std::max({last_fault_, kWorkEnds, Time(1000)}) + (faults_.long_pause ? kSettledSlow : kSettled);
  while (!events_.empty() && failure_.empty() && events_.top().at <= end) {
    now_ = events_.top().at;
    Event event = std::move(const_cast<Scheduled&>(events_.top()).event);
    events_.pop();
    event();
  }
  if (failure_.empty()) check_end();
  return failure_;
}

void Simulator::plan() {
  for (int task = 0; task < tasks(); ++task) {
    at(random_time(0, 800), [this, task] {
      if (!node(task).core) boot(task);
    });
  }
  const auto some_task = [this] { return static_cast<int>(random_() % nodes_.size()); };
  const auto fault_time = [this] { return random_time(0, static_cast<int>(kFaultsEnd.count()) - 1500); };
  const auto plan_fault = [this](Time when, Event event) {
    last_fault_ = std::max(last_fault_, when);
    at(when, std::move(event));
  };
  if (faults_.crash) {
    const int crashes = 1 + static_cast<int>(random_() % 2);
    Time when = fault_time();
    for (int i = 0; i < crashes; ++i) {
      const int task = some_task();
      if (i > 0) when = chance(0.5) ? when + random_time(0, 10) : fault_time();
      plan_fault(when, [this, task] { crash(task); });
      if (faults_.restart && chance(0.7)) {
        plan_fault(when + random_time(5, 800), [this, task] {
          if (!node(task).core) boot(task);
        });
      }
    }
  }
  const auto plan_pause = [&](int from, int to) {
    const int task = some_task();
    const Time when = fault_time();
    const Time length = random_time(from, to);
    last_fault_ = std::max(last_fault_, when + length);
    at(when, [this, task, length] {
      node(task).paused_until = std::max(node(task).paused_until, now_ + length);
      if (length < Time(400)) return;
      Fate& fate = fates_[node(task).incarnation];
      fate.last_pause_began = now_;
      fate.last_long_pause = now_ + length;
    });
  };
  if (faults_.short_pause) plan_pause(50, 300);
  if (faults_.long_pause) plan_pause(1000, 5000);
  if (faults_.partition) {
    const Time when = fault_time();
    const Time length = random_time(50, 3000);
    std::set<int> island;
    for (int task = 0; task < tasks(); ++task) {
      if (chance(0.5)) island.insert(task);
    }
    last_fault_ = std::max(last_fault_, when + length);
    at(when, [this, island] { island_ = island; });
    at(when + length, [this] {
      island_.clear();
      last_partition_ = now_;
    });
  }
  if (faults_.reset) {
    const int a = some_task();
    const int b = some_task();
    if (a != b) {
      plan_fault(fault_time(), [this, a, b] {
        to_process(a, now_ + Time(1), [b, this](auto& core) { return core.on_link_lost(now_, b); });
        to_process(b, now_ + Time(1), [a, this](auto& core) { return core.on_link_lost(now_, a); });
      });
    }
  }
}

void Simulator::at(Time when, Event event) {
  events_.push({.at = when, .order = order_++, .event = std::move(event)});
}

// Hands something to the process that lives there now, once it is not paused.
void Simulator::to_process(int task, Time when,
                           std::function<MembershipCore::Actions(MembershipCore&)> event) {
  at(when, [this, task, incarnation = node(task).incarnation, event = std::move(event)]() mutable {
    Node& target = node(task);
    if (!target.core || target.incarnation != incarnation) return;
    if (now_ < target.paused_until) return to_process(task, target.paused_until, std::move(event));
    perform(task, event(*target.core));
  });
}

Simulator::Time Simulator::random_time(int from, int to) {
  return Time(from + static_cast<int>(random_() % static_cast<std::uint64_t>(to - from + 1)));
}

bool Simulator::chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
}

void Simulator::boot(int task) {
  Node& fresh = node(task);
  fresh = Node{.incarnation = {random_(), random_() | 1}, .paused_until = Time(0)};
  fates_[fresh.incarnation] = {};
  MembershipOptions options{.tasks = roles_, .self = task, .incarnation = fresh.incarnation};
  if (change_) change_(options);
  fresh.core.emplace(std::move(options), now_);
  tick(task, fresh.incarnation);
  // The work of a training task ends at about the same time everywhere; that of the others is to wait.
  if (!roles_[static_cast<std::size_t>(task)].trains) return;
  at(std::max(now_, kWorkEnds + random_time(0, 50)), [this, task, incarnation = fresh.incarnation] {
    Node& worker = node(task);
    if (!worker.core || worker.incarnation != incarnation || worker.core->phase() != Phase::kRunning) return;
    to_process(task, now_, [this, task](auto& core) {
      if (core.phase() == Phase::kRunning) node(task).finish_called = true;
      return core.finish(now_);
    });
  });
}

void Simulator::tick(int task, Incarnation incarnation) {
  Node& ticking = node(task);
  if (!ticking.core || ticking.incarnation != incarnation) return;
  if (now_ < ticking.paused_until) {
    return at(ticking.paused_until, [this, task, incarnation] { tick(task, incarnation); });
  }
  perform(task, ticking.core->on_tick(now_));
  at(now_ + Time(100) + random_time(0, 8), [this, task, incarnation] { tick(task, incarnation); });
}

void Simulator::crash(int task) {
  if (!node(task).core) return;
  fates_[node(task).incarnation].crashed = true;
  break_links(task);
  node(task).core.reset();
}

void Simulator::exit_process(int task) {
  fates_[node(task).incarnation].ended = true;
  break_links(task);
  node(task).core.reset();
}

void Simulator::break_links(int task) {
  for (int other = 0; other < tasks(); ++other) {
    if (other == task || !node(other).core || cut(task, other)) continue;
    if (now_ < node(other).paused_until && chance(0.5))
      reset_.emplace(node(task).incarnation, node(other).incarnation);
    to_process(other, now_ + random_time(1, 5),
               [this, task](auto& core) { return core.on_link_lost(now_, task); });
  }
}

void Simulator::perform(int task, const MembershipCore::Actions& actions) {
  for (const Action& action : actions) {
    Node& self = node(task);
    if (!self.core || !failure_.empty()) return;
    switch (action.kind) {
      case Action::Kind::kBeat:
        send_beats(task);
        break;
      case Action::Kind::kProbe:
        probe(task, action.task);
        break;
      case Action::Kind::kStart:
        check_start(task, *action.view);
        break;
      case Action::Kind::kStop: {
        check_stop(task, *action.loss);
        at(now_ + kLinger, [this, task, incarnation = self.incarnation] {
          if (node(task).core && node(task).incarnation == incarnation) exit_process(task);
        });
        break;
      }
      case Action::Kind::kFinished:
        check_finished(task);
        break;
      default:
        break;
    }
  }
}

void Simulator::send_beats(int task) {
  const internal::Beat beat = node(task).core->beat(now_);
  for (int other = 0; other < tasks(); ++other) {
    if (other == task || !node(other).core || cut(task, other)) continue;
    if (faults_.loss && chance(0.05)) continue;
    const int copies = faults_.duplicate && chance(0.1) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      const Time arrival = now_ + (faults_.reorder ? random_time(1, 60) : random_time(1, 5));
      to_process(other, arrival, [this, beat, to = node(other).incarnation](auto& core) {
        return reset_.contains({beat.incarnation, to}) ? MembershipCore::Actions{} : core.on_beat(now_, beat);
      });
    }
  }
}

void Simulator::probe(int from, int to) {
  const bool unreachable = cut(from, to);
  at(now_ + (unreachable ? Time(200) : random_time(1, 3)), [this, from, to, unreachable] {
    const ProbeResult result = unreachable     ? ProbeResult::kSilent
                               : node(to).core ? ProbeResult::kAnswered
                                               : ProbeResult::kRefused;
    to_process(from, now_, [this, to, result](auto& core) { return core.on_probe(now_, to, result); });
  });
}

bool Simulator::cut(int a, int b) const {
  return island_.contains(a) != island_.contains(b);
}

void Simulator::fail(const std::string& what) {
  if (failure_.empty()) failure_ = fmt::format("at {} ms with {} tasks: {}", now_.count(), tasks(), what);
}

void Simulator::check_start(int task, const View& view) {
  ++starts_;
  if (node(task).view) fail(fmt::format("task {} started twice", task));
  node(task).view = view;
  if (!roles_[static_cast<std::size_t>(task)].needed) return;
  for (const View& other : views_) {
    bool common = false;
    for (std::size_t i = 0; i < view.members.size(); ++i) {
      common |= view.members[i] && view.members[i] == other.members[i];
    }
    if (common && view.generation == other.generation && view != other)
      fail(fmt::format("task {} started with another view than a member of it", task));
  }
  views_.push_back(view);
}

void Simulator::check_stop(int task, const Loss& loss) {
  ++stops_;
  Node& self = node(task);
  self.stopped = loss;
  const Fate& fate = fates_[loss.incarnation];
  const bool cut_off =
      !island_.empty() || (last_partition_ >= Time(0) && now_ - last_partition_ < kSettled + Time(5000));
  const bool it_paused = fate.last_pause_began >= Time(0);
  // A task that ended because of a loss is not itself one, except to those who could not hear of it.
  const bool gone = fate.crashed || (fate.ended && cut_off);
  bool true_loss = false;
  switch (loss.evidence) {
    case Evidence::kDead:
    case Evidence::kRestarted:
      true_loss = gone;
      break;
    case Evidence::kUnreachable:
      true_loss = gone || it_paused || cut_off;
      break;
    case Evidence::kLink:
      true_loss = cut_off;
      break;
    case Evidence::kStalled:
      true_loss = it_paused;
      break;
    default:
      break;
  }
  if (!true_loss) {
    fail(fmt::format("task {} stops for task {} (evidence {}), to which nothing of the kind happened", task,
                     loss.task, static_cast<int>(loss.evidence)));
  }
  // Agreement is promised where messages arrive and processes run.
  const bool paused_itself = fates_[self.incarnation].last_pause_began >= Time(0);
  const bool onlooker = !roles_[static_cast<std::size_t>(task)].needed;
  if (faults_.partition || paused_itself || onlooker || !self.view) return;
  decisions_.push_back({.view = self.view->digest(),
                        .told = self.incarnation,
                        .decider = self.view->members[static_cast<std::size_t>(loss.decided_by)],
                        .loss = loss});
}

void Simulator::check_agreement() {
  for (const Decision& a : decisions_) {
    for (const Decision& b : decisions_) {
      const bool same = a.loss.incarnation == b.loss.incarnation && a.loss.evidence == b.loss.evidence;
      // Only survivors have to; and a task that decides and dies before all have heard of it is a second
      // fault.
      const auto crashed = [&](const Decision& d) {
        return fates_[d.told].crashed || fates_[d.decider].crashed;
      };
      if (same || a.view != b.view || crashed(a) || crashed(b)) continue;
      return fail(
          fmt::format("one task names task {} as lost, another one task {}", a.loss.task, b.loss.task));
    }
  }
}

void Simulator::check_finished(int task) {
  node(task).finished = true;
  for (int other = 0; other < tasks(); ++other) {
    if (roles_[static_cast<std::size_t>(other)].trains && !node(other).finish_called) {
      return fail(fmt::format("task {} takes the run for done, but task {} is not", task, other));
    }
  }
  at(now_ + kLinger, [this, task, incarnation = node(task).incarnation] {
    if (node(task).core && node(task).incarnation == incarnation) exit_process(task);
  });
}

void Simulator::check_end() {
  check_agreement();
  now_ = events_.empty() ? now_ : events_.top().at;
  bool all_join = true;
  for (int task = 0; task < tasks(); ++task) {
    if (!roles_[static_cast<std::size_t>(task)].needed) continue;
    const Node& self = node(task);
    all_join &= self.core && (self.core->phase() == Phase::kJoining || self.core->phase() == Phase::kReady);
    const bool harmful = faults_.crash || faults_.long_pause || faults_.partition;
    if (!harmful && (self.stopped || !self.finished)) {
      return fail(fmt::format("nothing was wrong, but task {} did not finish", task));
    }
    if (!self.core || !self.view || self.stopped || self.finished) continue;
    for (int other = 0; other < tasks(); ++other) {
      const Incarnation member = self.view->members[static_cast<std::size_t>(other)];
      if (member && other != task && (fates_[member].crashed || fates_[member].ended)) {
        return fail(fmt::format("task {} goes on although task {} is gone", task, other));
      }
    }
  }
  if (all_join) fail("every task is here, but none started");
}

}  // namespace tandem::testing_support
