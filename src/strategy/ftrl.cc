#include "strategy/ftrl.h"

#include "strategy/optimizer_state_key.h"

namespace tandem::internal {
namespace {

std::unique_ptr<FtrlParamState> initial_state(const at::Tensor& parameter, const FtrlTorchOptions& options) {
  auto state = std::make_unique<FtrlParamState>();
  state->accumulator(at::full_like(parameter, options.initial_accumulator_value()).detach());
  state->linear(at::zeros_like(parameter).detach());
  return state;
}

void update(const at::Tensor& parameter, FtrlParamState& state, const FtrlTorchOptions& options) {
  const at::Tensor& gradient = parameter.grad();
  const double rate = options.lr();
  const at::Tensor accumulated = state.accumulator() + gradient * gradient;
  const at::Tensor power = accumulated.pow(-options.lr_power());
  const at::Tensor shift = (power - state.accumulator().pow(-options.lr_power())) / rate;
  state.linear().add_(gradient + 2 * options.l2_shrinkage() * parameter - shift * parameter);
  state.accumulator().copy_(accumulated);
  const double l2 = options.l2() + options.beta() / (2 * rate);
  const at::Tensor quadratic = power / rate + 2 * l2;
  const at::Tensor& linear = state.linear();
  parameter.copy_(at::where(linear.abs() > options.l1(), (linear.sign() * options.l1() - linear) / quadratic,
                            at::zeros_like(linear)));
}

}  // namespace

Ftrl::Ftrl(std::vector<torch::optim::OptimizerParamGroup> groups, const FtrlTorchOptions& options)
    : Optimizer(std::move(groups), std::make_unique<FtrlTorchOptions>(options)) {
  for (const auto& group : param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      state()[state_key(*this, parameter)] = initial_state(parameter, options);
    }
  }
}

at::Tensor Ftrl::step(LossClosure) {
  const torch::NoGradGuard no_grad;
  for (auto& group : param_groups()) {
    const auto& options = static_cast<const FtrlTorchOptions&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      auto& state = this->state()[state_key(*this, parameter)];
      if (!state) state = initial_state(parameter, options);
      update(parameter, static_cast<FtrlParamState&>(*state), options);
    }
  }
  return {};
}

}  // namespace tandem::internal
