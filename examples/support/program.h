#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cli/cluster_flags.h"
#include "tandem/strategy.h"

namespace tandem::examples {

// The flags that every training program takes; DESIGN's names, which are those of TensorFlow's official
// models.
struct TrainingFlags {
  std::string data_dir = {};
  std::string distribution_strategy = "mirrored";
  StrategyFlags devices = {};
  std::int64_t batch_size = 128;
  std::optional<std::int64_t> train_epochs = {};
  std::optional<std::int64_t> train_steps = {};
  std::optional<std::uint64_t> seed = {};
  bool skip_eval = false;
  std::string on_nan = "stop";
  std::string metrics_json = {};
  // For a strategy of several tasks.
  internal::ClusterProgramFlags tasks = {};
  std::string all_reduce_alg = "auto";
  std::string wire_format = "full";
  double communication_timeout = 0;

  void add_to(CLI::App& app);
  // Throws InvalidArgument, naming the flag, for values that cannot work. Nothing is written before this.
  void check() const;

  // Whether this process is the evaluator of a cluster, and so trains nothing. It is meant to evaluate
  // checkpoints: there are none yet, and a line says so.
  bool is_evaluator() const;

  // The strategy that the flags name. `program`: what else must be the same on every task.
  Strategy strategy(std::map<std::string, std::string> program) const;

  // Epochs and steps to train for: whichever of the two flags ends it first. `default_epochs` without either.
  std::int64_t epochs(std::int64_t default_epochs, std::int64_t steps_per_epoch) const;
};

}  // namespace tandem::examples
