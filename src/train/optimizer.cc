#include <fmt/format.h>
#include <torch/torch.h>

#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "tandem/optimizers.h"
#include "train/model_state.h"
#include "train/optimizer_binding.h"

namespace tandem {
namespace {

std::shared_ptr<internal::Variables> only_variables(internal::StrategyImpl& strategy) {
  const auto all = strategy.variables();
  if (all.size() == 1) return all.front();
  throw FailedPrecondition(
      all.empty()
          ? std::string("minimize() found no model: create one in the strategy's scope")
          : fmt::format(
                "minimize() found {} models under the strategy: say which, minimize(replica, loss, model)",
                all.size()));
}

void step(Optimizer::Binding& binding, ReplicaContext& replica, const at::Tensor& loss,
          const std::shared_ptr<internal::Variables>& variables) {
  internal::StrategyImpl& strategy = replica.strategy();
  // The first step of a custom loop. Nobody can see the new binding before all have seen that there is none.
  if (!binding.bound_to(variables)) {
    strategy.meeting().arrive(replica.local_id(), "minimize");
    if (replica.local_id() == 0) binding.bind(strategy, variables);
    strategy.meeting().arrive(replica.local_id(), "minimize");
  }
  internal::Updater& updater = *binding.updater;
  updater.begin_step(replica.local_id());
  if (loss.defined()) loss.backward();
  updater.apply(replica.local_id());
}

}  // namespace

Optimizer::Optimizer(internal::OptimizerSpec spec, double learning_rate)
    : binding_(std::make_shared<Binding>(Binding{std::move(spec), learning_rate})) {
  if (!has_strategy()) return;
  internal::StrategyImpl& strategy = get_strategy().impl();
  strategy.add_late_binder([weak = std::weak_ptr(binding_), &strategy] {
    const auto binding = weak.lock();
    if (!binding || binding->updater) return true;
    const auto all = strategy.variables();
    if (all.size() != 1 || all.front()->has_home()) return false;
    binding->bind(strategy, all.front());
    return true;
  });
}

void Optimizer::minimize(ReplicaContext& replica, const at::Tensor& loss) {
  step(*binding_, replica, loss, only_variables(replica.strategy()));
}

void Optimizer::minimize(ReplicaContext& replica, const at::Tensor& loss, const Model& model) {
  step(*binding_, replica, loss, model.state_->variables);
}

double Optimizer::learning_rate() const {
  return binding_->updater ? binding_->updater->learning_rate() : binding_->learning_rate;
}

void Optimizer::set_learning_rate(double rate) {
  binding_->learning_rate = rate;
  binding_->rate_was_set = true;
  if (binding_->updater) binding_->updater->set_learning_rate(rate);
}

void Optimizer::Binding::bind(internal::StrategyImpl& strategy,
                              const std::shared_ptr<internal::Variables>& to) {
  if (bound_to(to)) return;
  if (!variables.expired()) {
    throw FailedPrecondition("this optimizer already serves another model: make one optimizer for each");
  }
  updater = strategy.make_updater(to, spec);
  if (rate_was_set) updater->set_learning_rate(learning_rate);
  variables = to;
}

}  // namespace tandem
