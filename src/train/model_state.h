#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "strategy/variables.h"
#include "tandem/model.h"

namespace tandem {

struct Model::State {
  Strategy strategy;
  std::uint64_t seed = 0;
  std::vector<Network> networks;    // by local replica
  bool collective_forward = false;  // synchronised batch norms: a replica without rows must run it too
  std::shared_ptr<internal::Variables> variables;
  std::optional<CompileOptions> compiled;
  std::int64_t global_step = 0;
  bool stop_requested = false;

  // Throws FailedPrecondition before compile().
  CompileOptions& ready(const char* what);

  void reset_metrics();
  // The loss first, then the metrics as they stand.
  Logs logs(double loss) const;
};

}  // namespace tandem
