#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ps/push_ledger.h"

namespace tandem::testing_support {

// What goes wrong in a schedule.
struct PushFaults {
  bool lose = false;
  bool duplicate = false;
  bool restart_workers = false;
  bool restart_ps = false;  // it comes back with its last snapshot
  bool replay = false;      // workers keep what is not durable and send it again then
  bool closures = false;    // a coordinator hands out the work, some of it twice
  bool nan = false;         // some gradients are rejected
};

// A rule of the ledger's owner or of the ledger that is broken on purpose, to see that the world notices.
enum class BrokenRule {
  kNone,
  kApplyRepeats,
  kIgnoreClosures,
  kAdmitGhosts,
  kSkipGaps,
  kReplyBeforeRecord,
  kForgetOutOfOrder
};

// One shard with its ledger, workers that push to it, and a network between them that loses, doubles and
// reorders, all driven by one seed. Every update has an identity, and the shard's value is how often each was
// applied: what a test optimizer that adds 1 per push would count.
class LedgerWorld {
 public:
  LedgerWorld(std::uint64_t seed, const PushFaults& faults, BrokenRule broken = BrokenRule::kNone);

  // Empty, or the promise that was broken.
  std::string run();

  int applied() const { return total_applied_; }
  int repeats() const { return repeats_; }
  int refusals() const { return refusals_; }
  int ps_restarts() const { return ps_restarts_; }
  int worker_restarts() const { return worker_restarts_; }

 private:
  using Update = std::uint64_t;

  struct Request {
    internal::ps::PushId id;
    Update update = 0;
    bool nan = false;
  };
  struct Reply {
    internal::ps::PushId id;
    internal::ps::PushReply reply;
    std::uint64_t last_seq = 0;
    std::uint64_t durable_seq = 0;
  };
  struct Worker {
    internal::Incarnation incarnation = {};
    std::uint64_t next_seq = 1;
    std::map<std::uint64_t, Request> waiting = {};  // by seq: not settled yet
    std::map<std::uint64_t, Request> kept = {};     // settled, but not known to be durable
    std::set<std::uint64_t> settled = {};
  };
  // What a snapshot holds.
  struct ShardState {
    std::map<Update, int> counts = {};
    std::set<std::pair<internal::Incarnation, std::uint64_t>> settled = {};
    std::uint64_t version = 0;
  };
  struct Snapshot {
    ShardState state;
    std::string ledger;
    std::vector<internal::ps::PushMark> marks;
  };

  std::uint64_t below(std::uint64_t n);
  bool chance(std::uint64_t one_in) { return below(one_in) == 0; }

  void step();
  void compute(int worker);
  void send(const Request& request);
  void deliver_request(const Request& request);
  void deliver_reply(const Reply& reply);
  void hello(int worker);
  void restart_worker(int worker);
  void settle_closures();
  void restart_ps();
  void forget_promises();
  void settle_up_to(Worker& worker, std::uint64_t seq);
  void check_end();
  void violated(const std::string& promise);

  PushFaults faults_;
  BrokenRule broken_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
  std::string violation_;

  internal::ps::PushLedger ledger_;
  ShardState state_;
  std::optional<Snapshot> writing_;
  Snapshot durable_;

  std::vector<Worker> workers_;
  std::uint64_t incarnations_ = 0;
  std::vector<Request> requests_;
  std::vector<Reply> replies_;

  Update last_update_ = 0;
  std::uint64_t last_closure_ = 0;
  std::map<std::uint64_t, Update> updates_of_;  // of closures
  std::vector<std::uint64_t> again_;            // closures to be run once more
  std::set<Update> nans_;
  std::set<Update> promised_;  // applied, said the shard, and nothing was lost since

  int total_applied_ = 0;
  int repeats_ = 0;
  int refusals_ = 0;
  int ps_restarts_ = 0;
  int worker_restarts_ = 0;
};

}  // namespace tandem::testing_support
