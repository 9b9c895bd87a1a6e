#pragma once

#include <string>
#include <vector>

namespace tandem::internal {

// One line of `tandem doctor`: what was looked at, what was found, and what to do if it is not right.
struct Finding {
  enum class Level { kOk, kWarning, kProblem };

  Level level = Level::kOk;
  std::string about = {};  // "worker:1", "proxies"
  std::string text = {};
};

using Findings = std::vector<Finding>;

}  // namespace tandem::internal
