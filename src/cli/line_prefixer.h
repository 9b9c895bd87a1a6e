#pragma once

#include <string>
#include <string_view>

namespace tandem::internal {

// Puts a prefix before every line of a stream that arrives in pieces. Lines leave whole, so that those of
// several tasks can share one output.
//
// A carriage return is how a progress bar goes back to draw itself again. On a terminal the prefixed line is
// drawn over in the same way; elsewhere it ends the line. "\r\n" is one line end.
class LinePrefixer {
 public:
  LinePrefixer(std::string prefix, bool to_terminal)
      : prefix_(std::move(prefix)), to_terminal_(to_terminal) {}

  // Adds to `out` the lines that `text` completes.
  void append(std::string_view text, std::string& out);

  // The stream has ended: adds the last line, if it had no end, with one.
  void finish(std::string& out);

 private:
  void emit(std::string_view line, char end, std::string& out) const;

  std::string prefix_;
  bool to_terminal_;
  std::string line_;       // what has no end yet
  std::string rewritten_;  // the last line, if a carriage return ended it
  bool after_return_ = false;
};

}  // namespace tandem::internal
