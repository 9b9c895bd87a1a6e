#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "comm/tcp/handshake.h"
#include "ps/limits.h"
#include "ps/ps_service.h"
#include "ps/shard_table.h"
#include "ps/staging.h"
#include "ps/worker_roll.h"

namespace tandem::internal::ps {

// In the handshake of the transport a ps is member `ps` of a group, and worker w is this + w: members may
// only dial those before them, and nobody can be taken for another kind of task.
inline constexpr std::uint32_t kFirstWorkerMember = kMostPs;
inline tcp::GroupIdentity ps_identity(const std::string& cluster_id, const std::string& key) {
  return {.cluster_id = cluster_id, .generation = 0, .key = key, .size = kMostPs + kMostWorkers};
}

// What the connections of a ps share.
struct PsState {
  static int workers_to_begin(const PsServiceOptions& options) {
    return static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(options.workers),
                                                  options.aggregate.value_or(kMostWorkers)));
  }

  PsState(ShardStore& store, const PsServiceOptions& service_options, std::function<void()> wake)
      : options(service_options),
        identity(ps_identity(service_options.cluster_id, service_options.key)),
        changed(std::move(wake)),
        staging(changed),
        roll(options.staleness, workers_to_begin(options), options.absence),
        table(store,
              {.whole_steps = options.staleness == 0u,
               .aggregate = options.aggregate,
               .reject_not_finite = options.reject_not_finite},
              [this](std::uint64_t step) { return roll.busy_with(step); }) {}

  const PsServiceOptions options;
  const tcp::GroupIdentity identity;
  // Those who wait shall look again. Any thread.
  const std::function<void()> changed;
  Staging staging;
  WorkerRoll roll;
  ShardTable table;  // to be used once `ready`

  // The table is filled; then, once the first snapshot is on the disk, ready: what was promised to a worker
  // can be kept.
  std::atomic<bool> filled{false};
  std::atomic<bool> ready{false};
  bool resumed = false;
  std::mutex initialising;            // of what is below
  const void* initialiser = nullptr;  // the connection that fills the table just now
  Incarnation initialised_by = {};    // none: it came from a snapshot

  // How often it was given other values, and how many of these are in a snapshot, or could not be saved.
  std::atomic<std::uint64_t> assignments{0};
  std::atomic<std::uint64_t> assignments_saved{0};

  std::atomic<std::uint64_t> pushes{0};
  std::atomic<std::uint64_t> pulls{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> bytes_in{0};
  std::atomic<std::uint64_t> bytes_out{0};
  std::atomic<std::uint64_t> turned_away{0};
  std::array<std::atomic<std::uint64_t>, PsCounters::kStalenessBuckets> staleness{};

  // Once the table knows its plan.
  void set_budget() {
    const std::uint64_t variables = table.plan().bytes_on(options.ps);
    const bool sums = options.staleness == 0u;
    staging.set_budget((sums ? 1 : 2) * variables + (std::uint64_t{24} << 20));
  }
  void set_ready() {
    set_budget();
    filled = true;
    ready = true;
  }
  // Where some workers are enough for a step, nobody is behind: those who missed it go on with the next.
  void catch_up() {
    if (options.aggregate) roll.catch_up(table.whole_step());
  }
  std::uint64_t global_step() const { return options.ps == 0 ? table.updates() : 0; }
};

}  // namespace tandem::internal::ps
