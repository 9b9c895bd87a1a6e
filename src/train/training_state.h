#pragma once

#include <map>
#include <string>

#include "tandem/model.h"
#include "train/packed_tensors.h"
#include "train/training_progress.h"

namespace tandem::internal {

// Places in the data that are saved with a model: fit's own, and those of custom loops.
using TrackedDatasets = std::map<std::string, DistributedDataset*>;

// All that a training is at one moment, as names and tensors on the CPU that nobody changes. It does not
// depend on the strategy; what differs between replicas is there beside what a user reads.
//
//   fc.weight              a parameter or buffer, as Model::values() has it
//   fc.weight@exp_avg      what the optimizer remembers of it
//   bn.mean@replica1       a replica's own value of a buffer
//   @metrics.replica1      a replica's part of the metrics of the epoch that runs
//   @position.train.task1  a task's place in the data
//   @generator.task1       libtorch's generator for what is drawn outside of replicas
//   @callback0.fc.weight   what callbacks remember
//
// and JSON for the rest: step, seed, learning rate, progress of the epoch.
struct TrainingState {
  NamedTensors shared;  // the same on every task
  NamedTensors own;     // this task's, and no other's
  std::string meta;
};

// Parts of a name: those that a Python program wants have no "@".
inline bool is_plain(const std::string& name) {
  return name.find('@') == std::string::npos;
}

// Everything, or only what a model is when nothing trains it.
enum class CaptureScope { kTraining, kModel };

// A collective. Throws Unimplemented if the optimizer's state cannot be told.
TrainingState capture(Model::State& model, CaptureScope scope, const TrackedDatasets& datasets = {});

// Puts a model where it was when `tensors` (of all tasks) and `meta` were captured, under whatever strategy
// it is now, and the tracked datasets that it has places for. `source` begins the messages. Throws
// InvalidArgument, before anything is changed, if they do not fit the model or its optimizer; DataLoss if
// they make no sense. Returns where fit() stood, if it was saved within one.
std::optional<Resume> apply(Model::State& model, const NamedTensors& tensors, const std::string& meta,
                            const std::string& source, const TrackedDatasets& datasets = {});

}  // namespace tandem::internal
