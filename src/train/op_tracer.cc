#include "train/op_tracer.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace tandem::internal {
namespace {

// libtorch's callbacks are plain functions: what they need to know cannot be theirs.
std::atomic<bool> draws_arrows{false};
std::atomic<bool> samples_memory{false};
std::atomic<std::int64_t> last_sample{0};

struct Begun : at::ObserverContext {
  std::int64_t at = TraceRecorder::now();
};

std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction&) {
  return std::make_unique<Begun>();
}

// Bytes; 0 if the system does not tell.
std::int64_t resident_memory() {
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

void sample_memory(std::int64_t now) {
  constexpr std::int64_t kPause = 1'000'000;  // ns
  std::int64_t last = last_sample;
  if (now - last < kPause || !last_sample.compare_exchange_strong(last, now)) return;
  TraceRecorder::add({.kind = TraceEvent::Kind::kCounter,
                      .name = "resident memory (bytes)",
                      .begin = now,
                      .value = resident_memory()});
}

// Backward knows its operation by the thread that this ran on and a number of that thread's.
std::int64_t arrow_of(std::uint64_t thread, std::int64_t sequence) {
  return static_cast<std::int64_t>(thread << 44) + sequence;
}

void end_op(const at::RecordFunction& op, at::ObserverContext* context) {
  const std::int64_t begin = static_cast<Begun*>(context)->at;
  const std::int64_t now = TraceRecorder::now();
  TraceRecorder::add(
      {.kind = TraceEvent::Kind::kSpan, .name = op.name(), .begin = begin, .length = now - begin});
  if (draws_arrows && op.seqNr() >= 0) {
    const bool backward = op.scope() == at::RecordScope::BACKWARD_FUNCTION;
    TraceRecorder::add({.kind = backward ? TraceEvent::Kind::kFlowEnd : TraceEvent::Kind::kFlowBegin,
                        .name = "backward",
                        .begin = begin,
                        .value = arrow_of(backward ? op.forwardThreadId() : op.threadId(), op.seqNr())});
  }
  if (samples_memory) sample_memory(now);
}

}  // namespace

OpTracer::OpTracer(const OpTracerOptions& options) {
  draws_arrows = options.arrows;
  samples_memory = options.memory;
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(begin_op, end_op));
}

OpTracer::~OpTracer() {
  at::removeCallback(handle_);
}

void OpTracer::pair_arrows(TraceRecording& recording) {
  using Kind = TraceEvent::Kind;
  std::map<std::int64_t, std::int64_t> begins;  // the innermost begins last
  std::set<std::int64_t> ends;
  for (const auto& thread : recording.threads) {
    for (const TraceEvent& event : thread.events) {
      if (event.kind == Kind::kFlowEnd) ends.insert(*event.value);
      if (event.kind == Kind::kFlowBegin) begins[*event.value] = std::max(begins[*event.value], event.begin);
    }
  }
  for (auto& thread : recording.threads) {
    std::erase_if(thread.events, [&](const TraceEvent& event) {
      if (event.kind == Kind::kFlowEnd) return !begins.contains(*event.value);
      if (event.kind != Kind::kFlowBegin) return false;
      return begins.at(*event.value) != event.begin || !ends.contains(*event.value);
    });
  }
}

}  // namespace tandem::internal
