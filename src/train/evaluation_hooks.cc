#include "train/evaluation_hooks.h"

#include <utility>

#include "strategy/strategy_impl.h"
#include "train/model_state.h"

namespace tandem::internal {

EvaluationHooks::EvaluationHooks(const Model& model, std::vector<std::shared_ptr<SessionRunHook>> hooks)
    : model_(model), hooks_(std::move(hooks)) {
  for (const auto& hook : hooks_) hook->begin(model_);
}

void EvaluationHooks::after_create_session() {
  for (const auto& hook : hooks_) hook->after_create_session(model_);
}

void EvaluationHooks::before_run() {
  SessionRunContext context(model_);
  for (const auto& hook : hooks_) hook->before_run(context);
}

bool EvaluationHooks::after_run(Logs results) {
  SessionRunContext context(model_);
  const SessionRunValues values{.global_step = model_.global_step(), .results = std::move(results)};
  for (const auto& hook : hooks_) hook->after_run(context, values);
  const Model::State& state = ModelAccess::state(model_);
  SyncGroup* tasks = state.strategy.impl().tasks();
  if (!tasks) return !state.stop_requested;
  return tasks->sum("evaluation", std::vector<std::int64_t>{state.stop_requested})[0] == 0;
}

void EvaluationHooks::end() {
  for (const auto& hook : hooks_) hook->end(model_);
}

}  // namespace tandem::internal
