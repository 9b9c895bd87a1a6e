#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <cmath>

#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "tandem/optimizers.h"
#include "trace/recorder.h"
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

void check_scalar(const at::Tensor& loss, const ReplicaContext& replica) {
  if (!loss.defined() || loss.numel() == 1) return;
  throw InvalidArgument(
      fmt::format("the loss of replica {} has {} values: expected one; compute_average_loss(loss, "
                  "replica.global_rows()) is "
                  "this replica's part of the mean over the global batch",
                  replica.id(), loss.numel()));
}

internal::Updater& updater_for(Optimizer::Binding& binding, ReplicaContext& replica,
                               const std::shared_ptr<internal::Variables>& variables) {
  internal::StrategyImpl& strategy = replica.strategy();
  // The first step of a custom loop. Nobody can see the new binding before all have seen that there is none.
  if (!binding.bound_to(variables)) {
    strategy.meeting().arrive(replica.local_id(), "minimize");
    if (replica.local_id() == 0) binding.bind(strategy, variables);
    strategy.meeting().arrive(replica.local_id(), "minimize");
  }
  return *binding.updater;
}

void backward(const at::Tensor& loss, double scale) {
  const internal::TraceSpan span("backward");
  if (loss.defined()) (scale == 1 ? loss : loss * scale).backward();
}

void accumulate_part(Optimizer::Binding& binding, ReplicaContext& replica, const at::Tensor& loss,
                     const std::shared_ptr<internal::Variables>& variables) {
  check_scalar(loss, replica);
  internal::Updater& updater = updater_for(binding, replica, variables);
  updater.begin_part(replica.local_id());
  backward(loss, updater.loss_scale(replica.local_id()));
}

void step(Optimizer::Binding& binding, ReplicaContext& replica, const at::Tensor& loss,
          const std::shared_ptr<internal::Variables>& variables) {
  check_scalar(loss, replica);
  internal::Updater& updater = updater_for(binding, replica, variables);
  updater.begin_step(replica.local_id());
  backward(loss, updater.loss_scale(replica.local_id()));
  updater.apply(replica.local_id());
  if (replica.local_id() == 0) variables->count_step(updater.global_step());
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

void Optimizer::accumulate(ReplicaContext& replica, const at::Tensor& loss) {
  accumulate_part(*binding_, replica, loss, only_variables(replica.strategy()));
}

void Optimizer::accumulate(ReplicaContext& replica, const at::Tensor& loss, const Model& model) {
  accumulate_part(*binding_, replica, loss, model.state_->variables);
}

void Optimizer::apply_gradients(ReplicaContext& replica, const std::vector<at::Tensor>& gradients,
                                const Model& model) {
  const internal::Variables& variables = *model.state_->variables;
  const auto& parameters = variables.copy(replica.local_id()).parameters;
  const std::vector<std::size_t> trainable = variables.trainable();
  if (gradients.size() != trainable.size()) {
    throw InvalidArgument(
        fmt::format("apply_gradients: {} gradients: expected {}, one for each trainable parameter",
                    gradients.size(), trainable.size()));
  }
  // Backward of sum(parameter x gradient) gives exactly the gradients, by the way that all gradients go.
  at::Tensor loss;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const auto& [name, parameter] = parameters[trainable[i]];
    if (gradients[i].sizes() != parameter.sizes()) {
      throw InvalidArgument(
          fmt::format("apply_gradients: the gradient of \"{}\" has shape [{}]: expected [{}]", name,
                      fmt::join(gradients[i].sizes(), ", "), fmt::join(parameter.sizes(), ", ")));
    }
    const at::Tensor product = (parameter * gradients[i].detach()).sum();
    loss = loss.defined() ? loss + product : product;
  }
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

double Optimizer::loss_scale() const {
  if (binding_->updater) return binding_->updater->loss_scale(0);
  return binding_->spec.loss_scale ? binding_->spec.loss_scale->initial : 1;
}

bool Optimizer::has_loss_scale() const {
  return binding_->spec.loss_scale.has_value();
}

Optimizer optimizers::LossScaleOptimizer(Optimizer inner, LossScaleOptions options) {
  if (!(options.initial_scale >= 1) || !std::isfinite(options.initial_scale) || options.growth_steps < 1) {
    throw InvalidArgument(
        fmt::format("a loss scale of {} that grows after {} steps: expected 1 or more of both",
                    options.initial_scale, options.growth_steps));
  }
  if (inner.binding().updater) {
    throw FailedPrecondition("this optimizer already serves a model: give it a loss scale before");
  }
  inner.binding().spec.loss_scale = {options.initial_scale, options.growth_steps};
  return inner;
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
