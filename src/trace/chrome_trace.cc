#include "trace/chrome_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace tandem::internal {
namespace {

// A JSON string. Names come from whoever recorded: what is not UTF-8 is replaced.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  explicit Writer(std::int64_t since_epoch) : since_epoch_(since_epoch) {}

  void name(const char* what, std::int64_t thread, const std::string& name) {
    begin("M", quoted(what), thread);
    add(R"(,"args":{{"name":{}}}}})", quoted(name));
  }

  void event(std::int64_t thread, const TraceEvent& event) {
    switch (event.kind) {
      case TraceEvent::Kind::kSpan:
        begin("X", quoted(event.name), thread);
        add(R"(,"ts":{},"dur":{})", micros(event.begin + since_epoch_), micros(event.length));
        if (event.value) add(R"(,"args":{{"step":{}}})", *event.value);
        break;
      case TraceEvent::Kind::kCounter:
        begin("C", quoted(event.name), thread);
        add(R"(,"ts":{},"args":{{"value":{}}})", micros(event.begin + since_epoch_), event.value.value_or(0));
        break;
      case TraceEvent::Kind::kFlowBegin:
      case TraceEvent::Kind::kFlowEnd: {
        const bool is_begin = event.kind == TraceEvent::Kind::kFlowBegin;
        begin(is_begin ? "s" : "f", quoted(event.name), thread);
        add(R"(,"ts":{},"cat":"flow","id":{}{})", micros(event.begin + since_epoch_), event.value.value_or(0),
            is_begin ? "" : R"(,"bp":"e")");
        break;
      }
    }
    add("}}");
  }

  std::string text() && { return std::move(text_) + "\n]}\n"; }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void begin(const char* phase, const std::string& name, std::int64_t thread) {
    add("{}{{\"ph\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{}", first_ ? "" : ",\n", phase, name, pid_,
        thread);
    first_ = false;
  }

  // With all digits: a double would lose those below a microsecond.
  static std::string micros(std::int64_t nanos) {
    return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000);
  }

  const std::int64_t since_epoch_;
  const std::int64_t pid_ = getpid();
  bool first_ = true;
  std::string text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
};

}  // namespace

std::string to_chrome_trace(const TraceRecording& recording, const std::string& process) {
  Writer writer(recording.since_epoch);
  writer.name("process_name", 0, process);
  for (const auto& thread : recording.threads) {
    writer.name("thread_name", thread.id, thread.name);
    for (const TraceEvent& event : thread.events) writer.event(thread.id, event);
  }
  return std::move(writer).text();
}

}  // namespace tandem::internal
