#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace tandem::internal::ps {

// How far workers may run ahead of each other. A worker's clock is the number of steps whose pushes it has
// finished; steps count from 0. With a staleness of s a worker may start step k once every live worker has
// finished step k - s - 1: it computes on values that lack at most the last s steps of anybody. 0: all step
// together. None: nobody waits.
//
// Pure, as the ledger is: no lock, clock or thread.
class WorkerClocks {
 public:
  explicit WorkerClocks(std::optional<std::uint64_t> staleness) : staleness_(staleness) {}

  // A worker comes, or comes back as another process; the step to begin with. That is `at` if it knows (the
  // ps has lost its memory, the worker has not), else the slowest worker's: it holds up nobody who was not
  // held up before, and is not itself behind from the beginning.
  std::uint64_t join(int worker, std::optional<std::uint64_t> at = {});
  // It is gone: nobody waits for it any more.
  void leave(int worker);
  // Has finished all steps up to this one. Of a worker that is not there, and of old steps: nothing happens.
  void finished(int worker, std::uint64_t step);

  // Everybody has finished all steps before this one: there was no need to wait for the rest.
  void catch_up(std::uint64_t step);

  // No for a worker that is not there.
  bool may_start(int worker, std::uint64_t step) const;

  // Ascending.
  std::vector<int> live() const;
  // Those of them that have not finished this step.
  std::vector<int> busy_with(std::uint64_t step) const;
  // The clock of the slowest live worker; without any, the last that there was.
  std::uint64_t slowest() const;
  // How far the fastest one is ahead of the slowest.
  std::uint64_t spread() const;

 private:
  std::optional<std::uint64_t> staleness_;
  std::map<int, std::uint64_t> clocks_;
  std::uint64_t last_slowest_ = 0;
};

// Which pushes make a whole step, where the updates of all workers are added and applied once (staleness 0).
// The order of adding is that of the workers' numbers, whatever the order of arrival, so that two runs give
// the same bits.
class WholeStep {
 public:
  // aggregate: a step is whole with this many pushes, if more workers live: the others are backups, and come
  // too late (TensorFlow's SyncReplicasOptimizer). None: all of them.
  explicit WholeStep(std::uint64_t first_step = 0, std::optional<std::size_t> aggregate = {})
      : step_(first_step), aggregate_(aggregate) {}

  // The one that is being collected.
  std::uint64_t step() const { return step_; }

  enum class Offer : std::uint8_t {
    kHeld,   // keep it until the step is whole; an earlier one of this worker is replaced
    kLate,   // its step was applied without it
    kEarly,  // its step has not begun: the worker did not wait
  };
  Offer offer(int worker, std::uint64_t step);

  // The push that is held of a worker will not be used. A worker that dies is left in: what it has sent whole
  // counts.
  void drop(int worker) { held_.erase(worker); }

  // The workers whose pushes to add, ascending, if the step is whole now; else none. Live workers: ascending.
  std::optional<std::vector<int>> whole(std::span<const int> live) const;

  // The step is applied: the next one is collected.
  void advance();

 private:
  std::uint64_t step_;
  std::optional<std::size_t> aggregate_;
  std::set<int> held_;
};

}  // namespace tandem::internal::ps
