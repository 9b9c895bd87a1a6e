#include "ps/push_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <span>

#include "base/crc32c.h"
#include "ps/byte_codec.h"
#include "ps/limits.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

constexpr std::uint32_t kMagic = 0x314c5054;  // "TPL1"

// Bytes that an entry of a saved ledger has at least.
constexpr std::size_t kWorkerBytes = 36, kReplyBytes = 9, kIncarnationBytes = 16, kSetBytes = 12,
                      kRangeBytes = 16;

void incarnation_fields(auto& codec, auto& incarnation) {
  codec(incarnation.high);
  codec(incarnation.low);
}

void reply_fields(auto& codec, auto& reply) {
  codec(reply.status);
  codec(reply.version);
}

void read_closures(ByteReader& in, ClosureSet& closures, std::uint64_t settled) {
  std::uint64_t settled_below = 0;
  in(settled_below);
  std::map<std::uint64_t, std::uint64_t> ranges;
  bool ascends = true;
  for (std::size_t left = in.count(kRangeBytes, ClosureSet::kMostRanges); left > 0; --left) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    in(begin);
    in(end);
    ascends = ascends && (ranges.empty() || begin > ranges.rbegin()->first) && end <= kMostSeq + 1;
    ranges.insert_or_assign(begin, end);
  }
  if (!ascends || settled_below < settled || settled_below > kMostSeq + 1 ||
      !closures.restore(settled_below, std::move(ranges))) {
    throw BytesFault{"its closures are no set"};
  }
}

}  // namespace

PushLedger::Admission PushLedger::admit(int worker, Incarnation incarnation, std::uint64_t oldest_seq) {
  assert(worker >= 0 && worker < kMostWorkers && incarnation && oldest_seq >= 1 && oldest_seq <= kMostSeq);
  Worker& entry = workers_[worker];
  if (entry.incarnation != incarnation) {
    if (std::ranges::find(entry.earlier, incarnation) != entry.earlier.end()) return {};
    if (entry.incarnation) entry.earlier.push_back(entry.incarnation);
    if (entry.earlier.size() > kMostEarlier) entry.earlier.pop_front();
    entry = {.incarnation = incarnation, .earlier = std::move(entry.earlier)};
  }
  const std::uint64_t seen = entry.last_seq;
  if (oldest_seq > seen + 1) {
    entry.last_seq = oldest_seq - 1;
    entry.replies.clear();
  }
  return {.admitted = true, .last_seq = entry.last_seq, .lost = entry.last_seq - seen};
}

const PushLedger::Worker* PushLedger::find(const PushId& push) const {
  const auto found = workers_.find(push.worker);
  return found != workers_.end() && found->second.incarnation == push.incarnation ? &found->second : nullptr;
}

PushLedger::Decision PushLedger::decide(const PushId& push) const {
  const Worker* worker = find(push);
  if (!worker) return {.verdict = Verdict::kRefuse, .reply = {.status = Status::kNotAdmitted}};
  const std::uint64_t last = worker->last_seq;
  if (push.seq == last + 1) {
    const bool known =
        push.closure_push < closures_.size() && closures_[push.closure_push].contains(push.closure);
    const bool done = push.closure != 0 && (known || push.closure < closures_settled_);
    return {.verdict = done ? Verdict::kSkip : Verdict::kApply, .last_seq = last};
  }
  if (push.seq > last || push.seq == 0) {
    return {.verdict = Verdict::kRefuse, .reply = {.status = Status::kGap}, .last_seq = last};
  }
  // One that is older than all replies we have was answered long ago: its sender would not have gone on.
  const std::uint64_t age = last - push.seq;
  const auto& replies = worker->replies;
  const PushReply reply = age < replies.size() ? replies[replies.size() - 1 - age]
                          : replies.empty()    ? PushReply{}
                                               : replies.front();
  return {.verdict = Verdict::kRepeat, .reply = reply, .last_seq = last};
}

void PushLedger::record(const PushId& push, PushReply reply) {
  assert(settles(reply.status));
  assert(decide(push).verdict == Verdict::kApply ||
         (decide(push).verdict == Verdict::kSkip && reply.status == Status::kSuppressed));
  Worker& worker = workers_.at(push.worker);
  worker.last_seq = push.seq;
  worker.replies.push_back(reply);
  if (worker.replies.size() > kPushWindow) worker.replies.pop_front();
  if (push.closure == 0 || reply.status != Status::kApplied) return;
  assert(push.closure_push < kMostClosurePushes);
  while (closures_.size() <= push.closure_push) closures_.emplace_back().settle_below(closures_settled_);
  closures_[push.closure_push].insert(push.closure);
}

void PushLedger::settle_closures_below(std::uint64_t id) {
  closures_settled_ = std::max(closures_settled_, id);
  for (ClosureSet& closures : closures_) closures.settle_below(closures_settled_);
}

std::uint64_t PushLedger::last_seq(int worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? 0 : found->second.last_seq;
}

std::uint64_t PushLedger::durable_seq(int worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? 0 : found->second.durable_seq;
}

std::vector<PushMark> PushLedger::marks() const {
  std::vector<PushMark> marks;
  for (const auto& [number, worker] : workers_) {
    marks.push_back({number, worker.incarnation, worker.last_seq});
  }
  return marks;
}

void PushLedger::set_durable(const std::vector<PushMark>& marks) {
  for (const PushMark& mark : marks) {
    const auto found = workers_.find(mark.worker);
    if (found == workers_.end() || found->second.incarnation != mark.incarnation) continue;
    Worker& worker = found->second;
    worker.durable_seq = std::max(worker.durable_seq, std::min(mark.last_seq, worker.last_seq));
  }
}

std::string PushLedger::to_bytes() const {
  ByteWriter out;
  out(kMagic);
  out.count(workers_.size());
  for (const auto& [number, worker] : workers_) {
    out(static_cast<std::int32_t>(number));
    incarnation_fields(out, worker.incarnation);
    out(worker.last_seq);
    out.count(worker.replies.size());
    for (const PushReply& reply : worker.replies) reply_fields(out, reply);
    out.count(worker.earlier.size());
    for (const Incarnation& earlier : worker.earlier) incarnation_fields(out, earlier);
  }
  out(closures_settled_);
  out.count(closures_.size());
  for (const ClosureSet& closures : closures_) {
    out(closures.settled_below());
    out.count(closures.ranges().size());
    for (const auto& [begin, end] : closures.ranges()) {
      out(begin);
      out(end);
    }
  }
  std::string bytes = out.take();
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return bytes.append(reinterpret_cast<const char*>(&crc), sizeof crc);
}

PushLedger PushLedger::from_bytes(std::string_view bytes) {
  PushLedger ledger;
  try {
    std::uint32_t crc = 0;
    if (bytes.size() < sizeof crc) throw BytesFault{"it ends too early"};
    const std::string_view body = bytes.substr(0, bytes.size() - sizeof crc);
    std::memcpy(&crc, bytes.data() + body.size(), sizeof crc);
    if (crc != crc32c(body.data(), body.size())) throw BytesFault{"its checksum is of other bytes"};
    ByteReader in(std::as_bytes(std::span(body.data(), body.size())));
    std::uint32_t magic = 0;
    in(magic);
    if (magic != kMagic) throw BytesFault{"it is of another format"};
    std::int32_t last_number = -1;
    for (std::size_t left = in.count(kWorkerBytes, kMostWorkers); left > 0; --left) {
      std::int32_t number = 0;
      in(number);
      if (number <= last_number || number >= kMostWorkers) throw BytesFault{"a worker's number is wrong"};
      last_number = number;
      Worker& worker = ledger.workers_[number];
      incarnation_fields(in, worker.incarnation);
      if (!worker.incarnation) throw BytesFault{"a worker has no incarnation"};
      in(worker.last_seq);
      if (worker.last_seq > kMostSeq) throw BytesFault{"a worker has too many pushes"};
      worker.durable_seq = worker.last_seq;
      worker.replies.resize(in.count(kReplyBytes, kPushWindow));
      for (PushReply& reply : worker.replies) {
        reply_fields(in, reply);
        if (!settles(reply.status)) throw BytesFault{"a reply is none"};
      }
      if (worker.replies.size() > worker.last_seq) throw BytesFault{"a worker has more replies than pushes"};
      worker.earlier.resize(in.count(kIncarnationBytes, kMostEarlier));
      for (Incarnation& earlier : worker.earlier) incarnation_fields(in, earlier);
    }
    in(ledger.closures_settled_);
    if (ledger.closures_settled_ < 1 || ledger.closures_settled_ > kMostSeq) {
      throw BytesFault{"its closures are no set"};
    }
    ledger.closures_.resize(in.count(kSetBytes, kMostClosurePushes));
    for (ClosureSet& closures : ledger.closures_) read_closures(in, closures, ledger.closures_settled_);
    in.end();
  } catch (const BytesFault& fault) {
    throw DataLoss(fmt::format("the push ledger of a shard: {}", fault.reason));
  }
  return ledger;
}

}  // namespace tandem::internal::ps
