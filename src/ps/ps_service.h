#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ps/shard_store.h"

namespace tandem::internal::ps {

struct PsServiceOptions {
  int ps = 0;  // which of the ps tasks this is

  // Where it listens. 0: any port.
  std::string host = "127.0.0.1";
  int port = 0;

  // Who may come in: those that know both. `key` has 32 bytes, `cluster_id` 32 hexadecimal digits.
  std::string cluster_id = {};
  std::string key = {};
  bool encrypt = false;

  // Bounded steps begin once so many have come.
  int workers = 1;

  // How far workers may run ahead of each other; see staleness.h. 0: their updates for a step are added in
  // the order of their numbers and applied once. None: nobody waits.
  std::optional<std::uint64_t> staleness = {};

  // With staleness 0: a step is whole with so many pushes, and those of the other workers for it come too
  // late (TensorFlow's SyncReplicasOptimizer with backup workers). Pushes are then added as they come. None:
  // a step waits for all workers.
  std::optional<std::size_t> aggregate = {};

  // Gradients that are infinite or not numbers: leave them out, and say so to the sender. Else apply them.
  bool reject_not_finite = false;

  // That serve all connections; none of them ever waits for a peer.
  int threads = 2;

  // Where it saves itself, to go on from there when it is started again: one folder for each ps. Empty: it
  // does not.
  std::string snapshot_folder = {};
  // Beside the first one, which is on the disk before any worker comes in: after this time, or this many
  // updates of its first shard, whatever comes first.
  std::chrono::milliseconds snapshot_every{10'000};
  std::uint64_t snapshot_updates = 100;

  // A worker whose connection broke holds up bounded steps for so long.
  std::chrono::milliseconds worker_grace{1000};
  // One that stays away for so long will not come back; see join().
  std::chrono::milliseconds absence{300'000};
  // A peer that stops in the middle of a message is dropped after this.
  std::chrono::milliseconds stall{30'000};
};

// What a ps has done since it started.
struct PsCounters {
  static constexpr std::size_t kStalenessBuckets = 16;

  bool ready = false;    // it has a model
  bool resumed = false;  // from a snapshot
  int workers = 0;       // that are here now
  std::uint64_t shards = 0;
  std::uint64_t bytes = 0;  // of the variables
  std::uint64_t updates = 0;
  std::optional<std::uint64_t> global_step = {};  // as ps 0 counts it
  std::uint64_t pushes = 0;
  double pushes_per_second = 0;  // over the last seconds
  std::uint64_t pulls = 0;
  std::uint64_t refused = 0;  // pushes and pulls that were answered with an error
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t snapshots = 0;
  // Of a push, how many updates the first shard had seen since its worker pulled; the last: that many or
  // more.
  std::array<std::uint64_t, kStalenessBuckets> staleness = {};
};

// For TaskServer::set_details(), and so for `tandem status`.
std::map<std::string, std::string> details_of(const PsCounters& counters);

// A parameter server: holds the shards that a plan places on it, and serves hello, push and pull to any
// number of workers that come and go. What a peer sends is never trusted: whatever it is, the sender gets an
// error in one line, the others notice nothing, and nothing that is held changes.
//
// A shard is changed under a lock of its own; pulls are answered from copies, so that a slow reader holds up
// nobody. Beside what the store holds it needs twice the bytes of the variables and a few MiB, whatever the
// number of workers (see staging.h); with staleness 0 one of the two is for the sums.
//
// Each push takes effect once: see push_ledger.h. A push counts shard by shard: if its worker dies while
// sending it, the shards whose gradients came through have taken it, and the others have not.
class PsService {
 public:
  // Loads the newest whole snapshot, if there is one, and begins to serve. `store` must outlive it. Throws
  // InvalidArgument for an `aggregate` that cannot be, Unavailable if it cannot listen, NoUsableCheckpoint if
  // there are snapshots but none that is whole.
  PsService(ShardStore& store, PsServiceOptions options);
  // Closes all connections. What is newer than the last snapshot is saved.
  ~PsService();
  PsService(const PsService&) = delete;

  int port() const;

  // Until nobody needs it any more: the chief (worker 0) has finished, and no worker that has not is
  // connected (or `absence` has passed); or every worker that came has finished or has been gone for
  // `absence`, and at least one came. False after `timeout`.
  bool join(std::chrono::milliseconds timeout);

  // Now, if anything is newer than the last one. The error if it failed, else empty. Any thread.
  std::string save_snapshot();

  PsCounters counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::internal::ps
