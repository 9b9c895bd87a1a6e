#include "ps/ledger_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace tandem::testing_support {

using internal::ps::kPushWindow;
using internal::ps::PushLedger;
using internal::ps::PushReply;
using internal::ps::Status;
using Verdict = PushLedger::Verdict;

namespace {

constexpr int kSteps = 1000;
constexpr int kDrainRounds = 2000;

// Takes one out, whichever.
template <typename Value>
Value take(std::vector<Value>& all, std::size_t at) {
  std::swap(all[at], all.back());
  Value value = std::move(all.back());
  all.pop_back();
  return value;
}

}  // namespace

LedgerWorld::LedgerWorld(std::uint64_t seed, const PushFaults& faults, BrokenRule broken)
    : faults_(faults), broken_(broken), seed_(seed) {
  durable_.ledger = ledger_.to_bytes();  // of the beginning
  workers_.resize(1 + below(4));
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    workers_[static_cast<std::size_t>(worker)].incarnation = {1, ++incarnations_};
    hello(worker);
  }
}

std::uint64_t LedgerWorld::below(std::uint64_t n) {
  return internal::seed_of_stream(seed_, ++draws_) % n;
}

void LedgerWorld::violated(const std::string& promise) {
  if (violation_.empty()) violation_ = promise;
}

std::string LedgerWorld::run() {
  for (int i = 0; i < kSteps && violation_.empty(); ++i) step();
  // No more faults and no more work: everything under way comes to its end.
  const PushFaults none{.replay = faults_.replay};
  faults_ = none;
  for (int round = 0; round < kDrainRounds && violation_.empty(); ++round) {
    for (const Worker& worker : workers_) {
      for (const auto& [seq, request] : worker.waiting) send(request);
    }
    while (!requests_.empty()) deliver_request(take(requests_, below(requests_.size())));
    while (!replies_.empty()) deliver_reply(take(replies_, below(replies_.size())));
    if (std::ranges::all_of(workers_, [](const Worker& worker) { return worker.waiting.empty(); })) break;
  }
  if (violation_.empty()) check_end();
  return violation_;
}

void LedgerWorld::step() {
  const int worker = static_cast<int>(below(workers_.size()));
  Worker& self = workers_[static_cast<std::size_t>(worker)];
  switch (below(8)) {
    case 0:
    case 1:
      if (self.waiting.size() < kPushWindow) compute(worker);
      return;
    case 2:  // it has waited long enough, and sends again
      if (!self.waiting.empty()) {
        auto at = self.waiting.begin();
        std::advance(at, below(self.waiting.size()));
        send(at->second);
      }
      return;
    case 3:
    case 4:
      if (!requests_.empty()) deliver_request(take(requests_, below(requests_.size())));
      return;
    case 5:
      if (!replies_.empty()) deliver_reply(take(replies_, below(replies_.size())));
      return;
    case 6:
      if (faults_.restart_workers && chance(6)) return restart_worker(worker);
      if (faults_.restart_ps && chance(8)) return restart_ps();
      if (faults_.closures && chance(4)) return settle_closures();
      if (chance(4)) hello(worker);  // its connection broke, and it comes again
      return;
    default:
      if (writing_) {  // the disk has it
        ledger_.set_durable(writing_->marks);
        durable_ = *std::exchange(writing_, std::nullopt);
      } else if (chance(3)) {
        writing_ = Snapshot{state_, ledger_.to_bytes(), ledger_.marks()};
      }
  }
}

void LedgerWorld::compute(int worker) {
  Worker& self = workers_[static_cast<std::size_t>(worker)];
  Request request{.id = {.worker = worker, .incarnation = self.incarnation, .seq = self.next_seq++}};
  if (faults_.closures && !chance(4)) {
    if (!again_.empty()) {
      request.id.closure = take(again_, below(again_.size()));
    } else {
      request.id.closure = ++last_closure_;
      updates_of_[last_closure_] = ++last_update_;
      if (chance(5)) again_.push_back(last_closure_);  // its worker only seems to be dead
    }
    request.update = updates_of_[request.id.closure];
  } else {
    request.update = ++last_update_;
  }
  if (faults_.nan && request.id.closure == 0 && chance(5)) nans_.insert(request.update);
  request.nan = nans_.contains(request.update);
  self.waiting[request.id.seq] = request;
  send(request);
}

void LedgerWorld::send(const Request& request) {
  if (!faults_.lose || !chance(6)) requests_.push_back(request);
  if (faults_.duplicate && chance(4)) requests_.push_back(request);
}

void LedgerWorld::deliver_request(const Request& request) {
  internal::ps::PushId id = request.id;
  if (broken_ == BrokenRule::kIgnoreClosures) id.closure = 0;
  if (broken_ == BrokenRule::kAdmitGhosts && ledger_.decide(id).reply.status == Status::kNotAdmitted) {
    ledger_ = {};
    for (const Worker& worker : workers_) {
      const int number = static_cast<int>(&worker - workers_.data());
      ledger_.admit(number, number == id.worker ? id.incarnation : worker.incarnation, id.seq);
    }
  }
  PushLedger::Decision decision = ledger_.decide(id);
  if (broken_ == BrokenRule::kSkipGaps && decision.reply.status == Status::kGap) {
    ledger_.admit(id.worker, id.incarnation, id.seq);
    decision = ledger_.decide(id);
  }
  if (broken_ == BrokenRule::kApplyRepeats && decision.verdict == Verdict::kRepeat) {
    ++state_.counts[request.update];
  }
  PushReply reply = decision.reply;
  if (decision.verdict == Verdict::kApply || decision.verdict == Verdict::kSkip) {
    const bool applies = decision.verdict == Verdict::kApply && !request.nan;
    reply = {.status = applies       ? Status::kApplied
                       : request.nan ? Status::kRejected
                                     : Status::kSuppressed,
             .version = state_.version};
    if (applies) {
      reply.version = ++state_.version;
      ++total_applied_;
      const int count = ++state_.counts[request.update];
      if (count > 1) violated(fmt::format("update {} was applied {} times", request.update, count));
    }
    if (broken_ != BrokenRule::kReplyBeforeRecord || !chance(10)) {
      ledger_.record(id, reply);
      state_.settled.insert({id.incarnation, id.seq});
    }
    if (reply.status != Status::kRejected) promised_.insert(request.update);
  } else {
    ++(decision.verdict == Verdict::kRepeat ? repeats_ : refusals_);
  }
  for (const auto& [update, count] : state_.counts) {
    if (count > 1) violated(fmt::format("update {} was applied {} times", update, count));
  }
  if (faults_.lose && chance(6)) return;
  replies_.push_back({request.id, reply, ledger_.last_seq(id.worker), ledger_.durable_seq(id.worker)});
}

void LedgerWorld::deliver_reply(const Reply& reply) {
  Worker& worker = workers_[static_cast<std::size_t>(reply.id.worker)];
  if (worker.incarnation != reply.id.incarnation) return;  // its addressee is dead
  if (!settles(reply.reply.status)) return;                // it will send again
  settle_up_to(worker, reply.id.seq);
  while (!worker.kept.empty() && worker.kept.begin()->first <= reply.durable_seq) {
    worker.kept.erase(worker.kept.begin());
  }
}

// Pushes are settled in their order: an answer to one is an answer to all before it, which may have gone
// astray.
void LedgerWorld::settle_up_to(Worker& worker, std::uint64_t seq) {
  while (!worker.waiting.empty() && worker.waiting.begin()->first <= seq) {
    const auto oldest = worker.waiting.begin();
    if (broken_ == BrokenRule::kForgetOutOfOrder && oldest->first != seq && worker.waiting.contains(seq)) {
      worker.waiting.erase(seq);
      worker.settled.insert(seq);
      return;
    }
    if (faults_.replay) worker.kept.insert(*oldest);
    worker.settled.insert(oldest->first);
    worker.waiting.erase(oldest);
  }
}

void LedgerWorld::hello(int worker) {
  Worker& self = workers_[static_cast<std::size_t>(worker)];
  std::uint64_t oldest = self.next_seq;
  if (!self.waiting.empty()) oldest = std::min(oldest, self.waiting.begin()->first);
  if (!self.kept.empty()) oldest = std::min(oldest, self.kept.begin()->first);
  const auto admission = ledger_.admit(worker, self.incarnation, oldest);
  if (!admission.admitted) return violated(fmt::format("worker {} was not admitted", worker));
  std::uint64_t lost = 0;
  for (const std::uint64_t seq : self.settled) {
    if (seq < oldest && state_.settled.insert({self.incarnation, seq}).second) ++lost;
  }
  if (lost != admission.lost) {
    violated(
        fmt::format("{} pushes of worker {} were lost, the ledger says {}", lost, worker, admission.lost));
  }
  if (faults_.replay && lost > 0)
    violated(fmt::format("{} pushes were lost though worker {} lives", lost, worker));
  // What the shard has not seen after all is sent again.
  for (auto at = self.kept.upper_bound(admission.last_seq); at != self.kept.end(); at = self.kept.erase(at)) {
    self.settled.erase(at->first);
    self.waiting.insert(*at);
  }
}

// The coordinator says which closures are over.
void LedgerWorld::settle_closures() {
  std::uint64_t open = last_closure_ + 1;
  for (const std::uint64_t closure : again_) open = std::min(open, closure);
  for (const Worker& worker : workers_) {
    for (const auto* held : {&worker.waiting, &worker.kept}) {
      for (const auto& [seq, request] : *held) {
        if (request.id.closure != 0) open = std::min(open, request.id.closure);
      }
    }
  }
  ledger_.settle_closures_below(open);
}

void LedgerWorld::restart_worker(int worker) {
  ++worker_restarts_;
  Worker& self = workers_[static_cast<std::size_t>(worker)];
  // What it was working on is given to others; its pushes may still be under way.
  for (const auto& [seq, request] : self.waiting) {
    if (request.id.closure != 0) again_.push_back(request.id.closure);
  }
  self = {.incarnation = {1, ++incarnations_}};
  forget_promises();
  hello(worker);
}

// After a death: what is neither in the shard nor with a living worker is gone.
void LedgerWorld::forget_promises() {
  std::set<Update> still;
  for (const auto& [update, count] : state_.counts) still.insert(update);
  for (const Worker& worker : workers_) {
    for (const auto* held : {&worker.waiting, &worker.kept}) {
      for (const auto& [seq, request] : *held) still.insert(request.update);
    }
  }
  std::erase_if(promised_, [&](Update update) { return !still.contains(update); });
}

void LedgerWorld::restart_ps() {
  ++ps_restarts_;
  requests_.clear();  // its connections end with it
  replies_.clear();
  writing_.reset();
  state_ = durable_.state;
  ledger_ = PushLedger::from_bytes(durable_.ledger);
  forget_promises();
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) hello(worker);
}

void LedgerWorld::check_end() {
  for (const Worker& worker : workers_) {
    if (!worker.waiting.empty()) return violated("a push never comes to its end");
  }
  for (const auto& [update, count] : state_.counts) {
    if (count != 1 || nans_.contains(update)) {
      return violated(fmt::format("update {} was applied {} times", update, count));
    }
  }
  for (const Update update : promised_) {
    if (!state_.counts.contains(update)) return violated(fmt::format("update {} was lost", update));
  }
}

}  // namespace tandem::testing_support
