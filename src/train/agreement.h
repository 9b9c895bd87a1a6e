#pragma once

#include "tandem/model.h"

namespace tandem::internal {

// What the tasks of a training have agreed on between two steps: what one of them asks for, all do.
struct Agreement {
  bool stop = false;            // Model::stop_training()
  bool save_requested = false;  // Model::request_save()
  bool preempted = false;       // SIGTERM
};

// A collective. Also brings a save under way to its end if every task has written its part.
Agreement agree(Model::State& state);

}  // namespace tandem::internal
