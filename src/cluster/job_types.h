#pragma once

#include <string>
#include <vector>

namespace tandem::internal {

// The jobs that training knows, as task.type names them. "master" is the old name of a chief that evaluates.
inline const std::vector<std::string>& job_types() {
  static const std::vector<std::string> kTypes = {"chief", "worker", "ps", "evaluator", "master"};
  return kTypes;
}

}  // namespace tandem::internal
