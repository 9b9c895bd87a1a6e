#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

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

  void add_to(CLI::App& app);
  // Throws InvalidArgument, naming the flag, for values that cannot work. Nothing is written before this.
  void check() const;

  // Epochs and steps to train for: whichever of the two flags ends it first. `default_epochs` without either.
  std::int64_t epochs(std::int64_t default_epochs, std::int64_t steps_per_epoch) const;
};

}  // namespace tandem::examples
