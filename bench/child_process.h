#pragma once

#include <string>
#include <vector>

namespace tandem::bench {

struct ChildOutput {
  std::string text;             // all that it wrote to standard output
  double seconds_to_first = 0;  // from before its start until the first byte of it came
};

// Runs this program again, with other arguments, and waits for its end.
// Throws Error if it cannot start or fails, DeadlineExceeded if it is silent for two minutes (it is then
// ended).
ChildOutput run_this_program(const std::vector<std::string>& arguments);

}  // namespace tandem::bench
