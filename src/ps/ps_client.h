#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/membership_core.h"
#include "ps/plan.h"
#include "ps/shard_image.h"
#include "ps/status.h"

namespace tandem::internal::ps {

// Where a ps is, and the key that lets one in there.
struct PsEndpoint {
  std::string address = {};  // "host:port"
  std::string key = {};      // as in PsServiceOptions
};

// Where ps number `ps` is now. Nothing: that is not known yet, and `why` says in words what is missing.
using PsLocator = std::function<std::optional<PsEndpoint>(int ps, std::string& why)>;

// Of ps tasks that stay where they are.
PsLocator at_addresses(std::vector<std::string> addresses, std::string key);

struct PsClientOptions {
  int worker = 0;
  // Of this process; none: a random one.
  Incarnation incarnation = {};

  // Asked before each attempt to connect, since a ps that is started again has another port and key. Called
  // on a thread of the client, one for each ps; it must not wait, and what it throws ends the client.
  PsLocator locate = {};

  // As in PsServiceOptions.
  std::string cluster_id = {};
  bool encrypt = false;

  // float32 travels as bfloat16, both ways: half the bytes, and 8 bits of precision. First values do not.
  bool bfloat16 = false;

  // The step to begin with, of a training that goes on; 0: the first, or where the others are.
  std::uint64_t step = 0;

  // How long to wait for a ps that has not come yet (also: that the chief has not initialised) ...
  std::chrono::milliseconds connect_timeout{300'000};
  // ... and for one that was there and is gone.
  std::chrono::milliseconds ps_outage{300'000};
};

// One shard's gradient: all of it, or the rows named, ascending.
struct Gradient {
  std::size_t shard = 0;
  std::span<const std::byte> values = {};
  std::span<const std::int64_t> row_ids = {};
};

// Where values of a shard go: all of them, or those of the rows named, ascending.
struct PullTarget {
  std::size_t shard = 0;
  std::span<std::byte> values = {};
  std::span<const std::int64_t> row_ids = {};
};

struct PushOrder {
  std::uint64_t step = 0;
  double learning_rate = 0;
  // Of a coordinator; see push_ledger.h.
  std::uint64_t closure = 0;
  std::uint32_t closure_push = 0;
  std::uint64_t closures_settled = 0;
};

// What became of a push or a pull.
struct PsOutcome {
  std::uint64_t global_step = 0;  // after a push, as ps 0 counts it
  // Of a push, the highest of all shards': kApplied if all of them took it.
  Status status = Status::kApplied;
  // Of a push: the step to go on with. That is the one after it, or a later one if the others did not wait
  // for this worker (kLate, see PsServiceOptions::aggregate).
  std::uint64_t next_step = 0;
  std::string message = {};  // about the first shard that did not
};

// A push or a pull under way.
class PsHandle {
 public:
  struct Operation;
  explicit PsHandle(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  bool done() const;
  // Throws DeadlineExceeded, naming the ps tasks that have not answered, if it is not done in time: it goes
  // on then. Throws what made it fail: Unavailable if a ps is gone for good, InvalidArgument if one refused
  // it. Whatever is thrown, its memory must stay until the client is destroyed.
  PsOutcome wait(std::chrono::milliseconds timeout);

 private:
  std::shared_ptr<Operation> operation_;
};

// A worker's side of the parameter servers. One thread for each ps moves the bytes, straight from and to the
// caller's memory, which must stay as it is until the operation is done.
//
// A connection that breaks is made again, and what was not answered is sent again; no push is applied twice.
// A ps that is gone is waited for; if it comes back from a snapshot, lost_updates() says what it forgot. If
// it comes back with nothing, a client that has initialised it fails with Unavailable; others wait until
// somebody initialises it again. After an error of a ps every later call fails with it.
//
// Each step is pushed once, in order. Not thread-safe: one thread gives the orders; handles may be waited for
// from any thread.
class PsClient {
 public:
  // Begins to connect. Throws InvalidArgument for a variable that no gradient can be sent for.
  PsClient(PlacementPlan plan, PsClientOptions options);
  ~PsClient();
  PsClient(const PsClient&) = delete;

  // The chief's: gives each ps the model and, by shard, its first values (none for a table's); or those, with
  // state and global step, of a training that goes on. A ps that has them already, from a snapshot or an
  // earlier chief, keeps its own: returns how many did. Returns when all are ready. Throws InvalidArgument if
  // one has another model, Unavailable if one does not come.
  int initialise(const std::string& optimizer, std::span<const std::span<const std::byte>> values);
  int initialise(const std::string& optimizer, std::span<const ShardImage> images, std::uint64_t global_step);
  // The others': returns when all are. Throws the same.
  void wait_until_ready();

  // Of the steps, the one to begin with (where steps are bound to each other; else 0). Once ready.
  std::uint64_t first_step() const;
  std::uint64_t global_step() const;

  // Shards ascending; one that is left out gets no gradient in this step. Throws InvalidArgument for sizes
  // that are not the plan's.
  PsHandle push_async(const PushOrder& order, std::span<const Gradient> gradients);
  // For `step`: waits for what bounded staleness demands.
  PsHandle pull_async(std::uint64_t step, std::span<const PullTarget> targets);

  // All shards with their state, each as it is at one version, and with all that this worker has pushed to
  // it. The image of a table's shard is empty. Throws as wait() does.
  std::vector<ShardImage> read_shards(std::chrono::milliseconds timeout);
  // Sets values and state of all shards but tables, whose images are empty, and what to count global steps
  // from if that is given; without state a shard is as before its first update. Which pushes were applied is
  // not forgotten. Shard by shard: others should not push meanwhile. Returns when no ps that dies would
  // forget it. Throws InvalidArgument for sizes that are not the plan's, and what wait() throws; the client
  // cannot be used any more then.
  void assign(std::span<const ShardImage> images, std::optional<std::uint64_t> global_step,
              std::chrono::milliseconds timeout);

  // Whether it has failed because a ps is gone, or has come back with nothing: another client may find it.
  bool is_lost() const;

  // Updates of this worker that a ps had taken and then forgotten, because it came back from a snapshot: of
  // one shard, and of the ps tasks together (each counts its worst shard).
  std::uint64_t lost_updates(std::size_t shard) const;
  std::uint64_t lost_updates() const;

  // Tells all ps tasks that this worker is done, and waits for their answers. As best it can: a ps that is
  // gone is no error, and waited for 2 s at most; one that does not answer gets a line in the log. Every
  // later call fails.
  void finish(std::chrono::milliseconds timeout = std::chrono::seconds(60));

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::internal::ps
