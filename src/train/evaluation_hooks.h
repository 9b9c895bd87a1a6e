#pragma once

#include <memory>
#include <vector>

#include "tandem/model.h"
#include "tandem/session_hooks.h"

namespace tandem::internal {

// The hooks of an evaluation, called as a session calls those of a training. Where several tasks evaluate
// together after_run() is a collective, so all of them have hooks, or none.
class EvaluationHooks {
 public:
  // Calls begin().
  EvaluationHooks(const Model& model, std::vector<std::shared_ptr<SessionRunHook>> hooks);

  bool empty() const { return hooks_.empty(); }

  // When the model has the values that are evaluated.
  void after_create_session();
  void before_run();
  // Whether to go on.
  bool after_run(Logs results);
  void end();

 private:
  Model model_;
  std::vector<std::shared_ptr<SessionRunHook>> hooks_;
};

}  // namespace tandem::internal
