#include "train/agreement.h"

#include "strategy/strategy_impl.h"
#include "train/model_state.h"
#include "train/preemption.h"

namespace tandem::internal {

Agreement agree(Model::State& state) {
  std::vector<std::int64_t> votes{state.stop_requested, preemption_requested(), state.save_requested,
                                  state.saver && state.saver->wrote_its_part()};
  if (SyncGroup* tasks = state.strategy.impl().tasks()) votes = tasks->sum("votes", votes);
  if (state.saver && votes[3] == state.strategy.impl().num_tasks()) state.saver->commit();
  state.stop_requested = votes[0] > 0;
  state.save_requested = false;
  if (votes[1] > 0) acknowledge_preemption();
  return {.stop = votes[0] > 0, .save_requested = votes[2] > 0, .preempted = votes[1] > 0};
}

}  // namespace tandem::internal
