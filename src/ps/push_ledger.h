#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/membership_core.h"
#include "ps/closure_set.h"
#include "ps/status.h"

namespace tandem::internal::ps {

// How many pushes a worker may have under way to a shard. The ledger keeps as many replies.
inline constexpr std::size_t kPushWindow = 4;

// Which push this is. seq counts the pushes of one process of a worker to a shard, from 1.
struct PushId {
  int worker = 0;
  Incarnation incarnation = {};
  std::uint64_t seq = 0;
  std::uint64_t closure = 0;       // of the coordinator that scheduled it; 0: none
  std::uint32_t closure_push = 0;  // which of that closure's pushes, from 0
};

// So many pushes may a closure have.
inline constexpr std::uint32_t kMostClosurePushes = 1024;

// What a worker is told, again and again if it asks again.
struct PushReply {
  Status status = Status::kApplied;
  std::uint64_t version = 0;  // of the shard when the push was settled

  friend bool operator==(const PushReply&, const PushReply&) = default;
};

// How far each worker's pushes are settled.
struct PushMark {
  int worker = 0;
  Incarnation incarnation = {};
  std::uint64_t last_seq = 0;
};

// Which pushes one shard has applied, so that none is applied twice however often it is sent, and none is
// passed over without notice.
//
// The sender's part: a push that is settled settles all that it sent before, so their replies may be lost,
// and it keeps every push from the oldest that is not settled on (for a replay: not durable). After a
// reconnect it says hello, and sends again from the ledger's last_seq + 1 on.
//
// A pure state machine, without lock, clock or thread. The shard's owner asks decide(), applies what it says
// to apply, and calls record(), all in the critical section that changes the shard; a snapshot taken in such
// a section has both or neither.
class PushLedger {
 public:
  struct Admission {
    bool admitted = false;       // no: a newer process of this worker was here
    std::uint64_t last_seq = 0;  // the next push is this + 1
    std::uint64_t lost = 0;      // pushes that were settled once, before this ledger's snapshot was loaded
  };

  // A worker's process connects, or connects again, and says the number of the oldest push it can still send:
  // 1 for a new process. If the shard has not seen all before that one (it went back to a snapshot), they are
  // lost, and counted. Another process than last time begins anew, and the earlier one is locked out: what is
  // still on its way from there is refused.
  Admission admit(int worker, Incarnation incarnation, std::uint64_t oldest_seq);

  enum class Verdict : std::uint8_t {
    kApply,   // the next one: apply it and record() the reply
    kSkip,    // the next one, but its closure is applied already: record() kSuppressed without applying it
    kRepeat,  // settled before: `reply`
    kRefuse,  // kGap with last_seq, or kNotAdmitted: `reply.status`
  };
  struct Decision {
    Verdict verdict = Verdict::kRefuse;
    PushReply reply = {};
    std::uint64_t last_seq = 0;
  };
  Decision decide(const PushId& push) const;

  // The push that decide() let through is settled this way. Only one that was applied settles its closure: a
  // rejected one may be computed again elsewhere.
  void record(const PushId& push, PushReply reply);

  // The coordinator will not run any closure below `id` again, and no worker keeps a push of one for a
  // replay.
  void settle_closures_below(std::uint64_t id);

  // 0 for a worker that is not there.
  std::uint64_t last_seq(int worker) const;
  // Up to where a worker's pushes are in a snapshot on disk.
  std::uint64_t durable_seq(int worker) const;

  // Taken with a snapshot, and given back once it is on disk.
  std::vector<PushMark> marks() const;
  void set_durable(const std::vector<PushMark>& marks);

  // For snapshots. What is read back counts as durable.
  std::string to_bytes() const;
  // Throws DataLoss if the bytes are damaged or not of a ledger.
  static PushLedger from_bytes(std::string_view bytes);

 private:
  struct Worker {
    Incarnation incarnation = {};
    std::uint64_t last_seq = 0;
    std::uint64_t durable_seq = 0;
    std::deque<PushReply> replies = {};    // of the last pushes up to last_seq, kPushWindow at most
    std::deque<Incarnation> earlier = {};  // locked out; the last kMostEarlier
  };
  static constexpr std::size_t kMostEarlier = 64;

  const Worker* find(const PushId& push) const;

  std::map<int, Worker> workers_;
  std::uint64_t closures_settled_ = 1;
  std::vector<ClosureSet> closures_;  // by closure_push, as far as there was one
};

}  // namespace tandem::internal::ps
