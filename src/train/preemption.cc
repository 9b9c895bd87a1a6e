#include "train/preemption.h"

#include <signal.h>

#include <atomic>
#include <mutex>

namespace tandem::internal {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler writes it

std::mutex mutex;
int watches = 0;
struct sigaction before;

void remember(int) {
  requested = true;
}

}  // namespace

PreemptionWatch::PreemptionWatch() {
  const std::lock_guard lock(mutex);
  if (watches++ > 0) return;
  requested = false;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &before);
}

PreemptionWatch::~PreemptionWatch() {
  const std::lock_guard lock(mutex);
  if (--watches > 0) return;
  sigaction(SIGTERM, &before, nullptr);
  if (requested.exchange(false)) raise(SIGTERM);
}

bool preemption_requested() {
  return requested;
}

void acknowledge_preemption() {
  requested = false;
}

}  // namespace tandem::internal
