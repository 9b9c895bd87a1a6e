#pragma once

#include <cstddef>
#include <string>

namespace tandem::internal {

// One of this program's own output streams, with what is still to be written to it: a reader that is slow or
// has stopped (`| less`) must not stop a loop that also serves signals.
class Output {
 public:
  explicit Output(int descriptor) : descriptor_(descriptor) {}

  int descriptor() const { return descriptor_; }

  // Add here; whole lines, if several writers share the stream.
  std::string& queue() { return queue_; }
  bool empty() const { return written_ == queue_.size(); }
  // There is enough to write; who adds more should wait.
  bool full() const;

  // Once poll() says that the stream takes some: writes that much, without waiting. After a failure what is
  // queued is dropped; false if that is because no one reads any more.
  bool write_some();

 private:
  int descriptor_;
  std::string queue_;
  std::size_t written_ = 0;
};

// Whether escape sequences mean something to what reads the stream.
bool is_terminal(int descriptor);
// The same, unless the user has set NO_COLOR (no-color.org).
bool wants_colour(int descriptor);

// Both streams lead to the same place, as after 2>&1.
bool same_file(int a, int b);

}  // namespace tandem::internal
