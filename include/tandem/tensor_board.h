#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tandem/callbacks.h"
#include "tandem/summary.h"

namespace tandem {

struct TensorBoardOptions {
  // Where the runs "train" and "validation" are made: `tensorboard --logdir` shows them.
  std::string log_dir = "logs";
  // Epochs between two histograms of every parameter and buffer. 0: none.
  std::int64_t histogram_freq = 0;
  // How fast training is: "epoch_steps_per_second", validation not counted, and "batch_steps_per_second" with
  // the other curves over steps.
  bool write_steps_per_second = false;
  // Steps between two points of the curves "batch_loss" and so on, which hold the means over the epoch so
  // far. 1 is Keras's "batch"; 0, its "epoch": none.
  std::int64_t update_freq = 0;
  // Shown in the HPARAMS tab, as a trial whose folder is log_dir. Empty: none.
  HParams hparams = {};
};

// Keras's TensorBoard: after every epoch "epoch_loss", "epoch_<metric>" and "epoch_learning_rate" at the
// epoch's number, in train/ and, of the validation, in validation/; there also
// "evaluation_<metric>_vs_iterations" at the step. Histograms are named after the parameters, "fc.weight" as
// "fc/weight/histogram".
//
// The chief writes. The disk never stops a training: see SummaryWriter. A training that goes on from a
// checkpoint hides what a killed process wrote later: docs/callbacks.md.
std::shared_ptr<Callback> TensorBoard(TensorBoardOptions options = {});

}  // namespace tandem
