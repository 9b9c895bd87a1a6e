#pragma once

namespace tandem::internal {

// While one lives, the first SIGTERM does not end the process but is remembered; the second ends it as ever.
// A SIGTERM that nobody has acted upon when the last one goes is sent again.
class PreemptionWatch {
 public:
  PreemptionWatch();
  ~PreemptionWatch();
  PreemptionWatch(const PreemptionWatch&) = delete;
  PreemptionWatch& operator=(const PreemptionWatch&) = delete;
};

// Whether a SIGTERM came while one was watching.
bool preemption_requested();

// It is being acted upon: the process will end by itself.
void acknowledge_preemption();

}  // namespace tandem::internal
