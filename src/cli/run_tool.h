#pragma once

#include <string>
#include <vector>

namespace tandem::internal {

struct ToolResult {
  int exit_code = 0;  // 128 + signal if it was killed
  std::string out;    // what it wrote to standard output
};

// Runs a program of the system's, found in PATH, and waits for its end: it must have limits of its own.
// Standard error is this program's, and so is the process group: Ctrl-C ends both. Throws NotFound that names
// the program if it is not installed, Error if it cannot be started.
ToolResult run_tool(const std::vector<std::string>& arguments);

}  // namespace tandem::internal
