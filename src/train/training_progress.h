#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/dataset.h"
#include "tandem/strategy.h"

namespace tandem {

class Model;

namespace internal {

// How far a fit() is: with the model, its callbacks and the place in the data, all that it needs to go on
// later. The same on every task.
struct TrainingProgress {
  std::int64_t epoch = 0;  // the one that runs or begins next, from 0
  std::int64_t step = 0;   // steps of it that are done
  std::int64_t steps = 0;  // of all epochs
  // Over the steps of the epoch that are done.
  double loss_sum = 0;  // each row counted once
  double rows = 0;
  std::int64_t batch_size = 0;  // what positions in the data are counted in
  bool stopped = false;         // a callback has ended it
  History history = {};
};

// What a callback that restores hands to fit().
struct Resume {
  TrainingProgress progress = {};
  std::vector<CallbackState> callbacks = {};  // in their order
  DatasetPosition position = {};              // this task's
};

// The fit() that runs, as those see it who save its state.
struct RunningFit {
  const TrainingProgress& progress;
  const std::vector<std::shared_ptr<Callback>>& callbacks;
  const std::optional<DistributedDataset>& batches;
};

}  // namespace internal
}  // namespace tandem
