#pragma once

#include <memory>
#include <mutex>

#include "strategy/updater.h"
#include "tandem/optimizers.h"

namespace tandem {

namespace internal {
class StrategyImpl;
}

// What an Optimizer handle points at: how to make the libtorch optimizer, and, once a model is known, its updater.
struct Optimizer::Binding {
  internal::OptimizerSpec spec;
  double learning_rate = 0;  // the rate to begin with, before there is an updater
  std::mutex mutex;          // replicas may bind at once, at the first minimize() of a custom loop
  std::unique_ptr<internal::Updater> updater;
  std::weak_ptr<internal::Variables> variables;  // the updater's

  // In cross-replica context: makes the updater, dropping one for other variables.
  void bind(internal::StrategyImpl& strategy, const std::shared_ptr<internal::Variables>& to);
};

}  // namespace tandem
