#pragma once

#include <ATen/record_function.h>

#include "trace/recorder.h"

namespace tandem::internal {

struct OpTracerOptions {
  bool arrows = true;   // from an operation to its part of backward
  bool memory = false;  // how much of this process is in memory, at most once in a millisecond
};

// While it lives, every operation of libtorch on every thread is a span of the trace that is being recorded.
// One at a time in a process.
class OpTracer {
 public:
  explicit OpTracer(const OpTracerOptions& options);
  ~OpTracer();
  OpTracer(const OpTracer&) = delete;
  OpTracer& operator=(const OpTracer&) = delete;

  // An operation is often made of others, which all would begin the arrow to the same backward: leaves the
  // innermost's, and no arrow without both of its ends.
  static void pair_arrows(TraceRecording& recording);

 private:
  at::CallbackHandle handle_;
};

}  // namespace tandem::internal
