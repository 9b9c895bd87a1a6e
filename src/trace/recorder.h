#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::internal {

// What one thread did, or one number at one moment. Times are nanoseconds of the steady clock.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    kSpan,
    kCounter,    // `value` at `begin`
    kFlowBegin,  // an arrow from here to the kFlowEnd of the same `value`
    kFlowEnd,
  };

  Kind kind = Kind::kSpan;
  std::string name = {};
  std::int64_t begin = 0;
  std::int64_t length = 0;                 // of a span
  std::optional<std::int64_t> value = {};  // of a span: the step it is, if it is one
};

// What was recorded, by thread.
struct TraceRecording {
  struct Thread {
    std::int64_t id = 0;  // the system's
    std::string name = {};
    std::vector<TraceEvent> events = {};
  };

  std::vector<Thread> threads = {};
  std::int64_t begin = 0;    // on the steady clock
  std::int64_t dropped = 0;  // events beyond what memory is taken for
  // What to add to a time of the steady clock to have nanoseconds since 1970.
  std::int64_t since_epoch = 0;
};

// One recording at a time in a process. Any thread may add to it, at about the cost of the two looks at the
// clock; while there is none a span costs one look at a flag.
class TraceRecorder {
 public:
  static bool recording() { return recording_.load(std::memory_order_relaxed); }

  // False if a recording is under way, which goes on.
  [[nodiscard]] static bool start();
  // Ends it. Spans that other threads have not ended by now are not in it.
  static TraceRecording stop();

  static void add(TraceEvent event);
  static std::int64_t now();

 private:
  static std::atomic<bool> recording_;
};

// From here to the end of the block, on this thread.
class TraceSpan {
 public:
  explicit TraceSpan(const char* name, std::optional<std::int64_t> step = {})
      : name_(name), step_(step), begin_(TraceRecorder::recording() ? TraceRecorder::now() : kNot) {}
  ~TraceSpan() {
    if (begin_ != kNot) end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  static constexpr std::int64_t kNot = -1;

  void end() const;

  const char* name_;
  std::optional<std::int64_t> step_;
  std::int64_t begin_;
};

}  // namespace tandem::internal
