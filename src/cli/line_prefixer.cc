#include "cli/line_prefixer.h"

namespace tandem::internal {
namespace {

// A task that never ends its line must not fill the memory: then the line is cut.
constexpr std::size_t kLongestLine = std::size_t{1} << 20;

}  // namespace

void LinePrefixer::append(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const auto end = text.find_first_of("\r\n");
    line_.append(text.substr(0, end));
    if (end == std::string_view::npos) {
      if (line_.size() >= kLongestLine) finish(out);
      return;
    }
    if (text[end] == '\n') {
      if (!after_return_ || !line_.empty()) {
        emit(line_, '\n', out);
      } else if (to_terminal_) {
        emit(rewritten_, '\n', out);  // it was "\r\n": the line is to stay
      }
      after_return_ = false;
    } else if (!line_.empty()) {
      emit(line_, to_terminal_ ? '\r' : '\n', out);
      rewritten_ = line_;
      after_return_ = true;
    }
    line_.clear();
    text.remove_prefix(end + 1);
  }
}

void LinePrefixer::finish(std::string& out) {
  if (!line_.empty()) {
    emit(line_, '\n', out);
  } else if (after_return_ && to_terminal_) {
    emit(rewritten_, '\n', out);
  }
  line_.clear();
  after_return_ = false;
}

void LinePrefixer::emit(std::string_view line, char end, std::string& out) const {
  // Under it there may be a line, perhaps of another task, that is being drawn over: clear it.
  if (to_terminal_) out += "\x1b[K";
  out += prefix_;
  out += line;
  out += end;
}

}  // namespace tandem::internal
