#pragma once

#include <memory>

#include "strategy/updater.h"
#include "tandem/optimizers.h"

namespace tandem {

namespace internal {
class StrategyImpl;
}

// What an Optimizer handle points at: how to make the libtorch optimizer, and, once a model is known, its
// updater.
struct Optimizer::Binding {
  internal::OptimizerSpec spec;
  double learning_rate = 0;   // while there is no updater
  bool rate_was_set = false;  // by set_learning_rate(); else a new updater keeps the rates it is made with
  std::unique_ptr<internal::Updater> updater = {};
  std::weak_ptr<internal::Variables> variables = {};  // the updater's

  bool bound_to(const std::shared_ptr<internal::Variables>& to) const {
    return updater && variables.lock() == to;
  }

  // Makes the updater, while no replica computes. Keeps the one there is if it is for the same variables;
  // throws FailedPrecondition if it serves another model that still lives.
  void bind(internal::StrategyImpl& strategy, const std::shared_ptr<internal::Variables>& to);
};

}  // namespace tandem
