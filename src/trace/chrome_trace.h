#pragma once

#include <string>

#include "trace/recorder.h"

namespace tandem::internal {

// A recording in Chrome's trace event format (JSON), for chrome://tracing, Perfetto and TensorBoard: one
// process, which `process` names ("worker:1"), one line per thread; times in microseconds since 1970, so that
// traces of several processes on one machine fit together.
std::string to_chrome_trace(const TraceRecording& recording, const std::string& process);

}  // namespace tandem::internal
