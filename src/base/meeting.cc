#include "base/meeting.h"

#include <fmt/format.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "base/log.h"
#include "tandem/device.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// Replicas reach a barrier within microseconds of each other, so a short spin saves a futex call and a
// wake-up on both sides. With fewer cores than seats it would only delay the one that is waited for.
constexpr int kSpins = 20000;
constexpr std::chrono::seconds kNotice{60};

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Meeting::Meeting(int seats)
    : spins_(seats <= usable_cores() ? kSpins : 0), missing_(seats), where_(seats), gone_(seats) {}

void Meeting::arrive(int seat, const char* where) {
  check(seat, where);
  const std::uint64_t phase = phase_.load(std::memory_order_acquire);
  where_[seat].store(where, std::memory_order_relaxed);
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    bool alike = true;
    for (auto& other : where_) {
      alike = alike && std::string_view(other.exchange(nullptr, std::memory_order_relaxed)) == where;
    }
    missing_.store(seats(), std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex_);
      if (!alike) aborted_.store(true, std::memory_order_release);
      phase_.store(phase + 1, std::memory_order_release);
    }
    changed_.notify_all();
    if (!alike) {
      throw FailedPrecondition(fmt::format(
          "replica {} is in {} while another replica is in another collective: every replica must issue the "
          "same collectives in the same order",
          seat, where));
    }
  } else {
    wait(seat, where, phase);
  }
}

void Meeting::wait(int seat, const char* where, std::uint64_t phase) {
  const auto done = [&] {
    return phase_.load(std::memory_order_acquire) != phase || aborted() ||
           left_.load(std::memory_order_acquire) > 0;
  };
  for (int i = 0; i < spins_; ++i) {
    if (done()) break;
    pause_cpu();
  }
  if (!done()) {
    std::unique_lock lock(mutex_);
    // A replica may compute for as long as its model needs, so this wait has no deadline of its own: it ends
    // when the other arrives, fails or returns. A line each minute says for whom it waits.
    while (!changed_.wait_for(lock, kNotice, done)) {
      for (int other = 0; other < seats(); ++other) {
        if (!where_[other].load()) log_warning("replica {} waits in {} for replica {}", seat, where, other);
      }
    }
  }
  // Once all have arrived, a seat that is faster than this one may already have left: that is no error.
  const bool all_arrived = phase_.load(std::memory_order_acquire) != phase;
  if (!all_arrived || aborted()) check(seat, where);
}

void Meeting::check(int seat, const char* where) const {
  if (aborted())
    throw MeetingAborted(fmt::format("replica {} stopped in {} because another replica failed", seat, where));
  if (left_.load(std::memory_order_acquire) == 0) return;
  for (int other = 0; other < seats(); ++other) {
    if (gone_[other].load(std::memory_order_acquire)) {
      throw FailedPrecondition(fmt::format(
          "replica {} waits in {} but replica {} has returned without it: every replica must issue the same "
          "collectives in the same order",
          seat, where, other));
    }
  }
}

void Meeting::leave(int seat) {
  {
    const std::lock_guard lock(mutex_);
    gone_[seat].store(true, std::memory_order_release);
    left_.fetch_add(1, std::memory_order_acq_rel);
  }
  changed_.notify_all();
}

void Meeting::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void Meeting::reset() {
  aborted_.store(false);
  left_.store(0);
  missing_.store(seats());
  for (auto& where : where_) where.store(nullptr);
  for (auto& gone : gone_) gone.store(false);
}

}  // namespace tandem::internal
