#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster_flags.h"
#include "cli/program.h"
#include "tandem/callbacks.h"
#include "tandem/model.h"
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
  std::string verbose = "auto";
  std::string metrics_json = {};
  // Checkpoints and summaries; empty: what TF_CONFIG says, or none.
  std::string model_dir = {};
  std::int64_t save_checkpoints_steps = 1000;
  int keep_checkpoint_max = 3;
  int preempt_exit_code = internal::kExitPreempted;
  // For a strategy of several tasks.
  internal::ClusterProgramFlags tasks = {};
  std::string all_reduce_alg = "auto";
  std::string wire_format = "full";
  std::string dtype = "fp32";
  double communication_timeout = 0;
  // For parameter servers.
  std::string max_staleness = "none";
  double ps_outage_seconds = 300;
  double ps_snapshot_seconds = 10;

  void add_to(CLI::App& app);
  // Throws InvalidArgument, naming the flag, for values that cannot work. Nothing is written before this.
  void check() const;

  // Whether this process is the evaluator of a cluster, and so trains nothing. It is meant to evaluate
  // checkpoints: that is not in this version, and a line says so.
  bool is_evaluator() const;

  // With --model_dir: what saves the training there, so that the same command started again goes on. Without:
  // nothing.
  std::vector<std::shared_ptr<Callback>> callbacks() const;

  // Calls train(); ends with --preempt_exit_code where it was told to go.
  int run(const std::function<void()>& train) const;

  // The strategy that the flags name. `program`: what else must be the same on every task.
  Strategy strategy(const std::map<std::string, std::string>& program) const;

  // Whether this process is a parameter server: then it has served, and the training is over.
  bool has_served(const std::map<std::string, std::string>& program) const;

  // Whether this task evaluates in the end, and writes --metrics_json: all do where that is done together,
  // else the chief.
  bool sums_up(const Strategy& strategy) const;

  // In what numbers to compute: --dtype.
  Policy policy() const;

  // How fit shows its progress.
  Verbose verbosity() const;

  // Epochs and steps to train for: whichever of the two flags ends it first. `default_epochs` without either.
  std::int64_t epochs(std::int64_t default_epochs, std::int64_t steps_per_epoch) const;

 private:
  // Whether the strategy is one of several tasks.
  bool has_tasks() const;
  std::string folder_of_model() const;
  StrategyFlags strategy_flags(std::map<std::string, std::string> program) const;
};

}  // namespace tandem::examples
