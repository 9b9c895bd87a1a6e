#include "tandem/optimizers.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "strategy/ftrl.h"
#include "tandem/error.h"
#include "train/optimizer_binding.h"

namespace tandem::optimizers {
namespace {

// The options that libtorch would take and then train badly with. Written so that NaN fails too.
class Checks {
 public:
  explicit Checks(const char* optimizer) : optimizer_(optimizer) {}

  void positive(const char* option, double value) const {
    require(value > 0 && std::isfinite(value), option, value, "a finite number above 0");
  }
  void not_negative(const char* option, double value) const {
    require(value >= 0 && std::isfinite(value), option, value, "a finite number, 0 or above");
  }
  void below_one(const char* option, double value) const {
    require(value >= 0 && value < 1, option, value, "0 or above, and below 1");
  }
  void at_most_one(const char* option, double value) const {
    require(value >= 0 && value <= 1, option, value, "0 to 1");
  }

 private:
  void require(bool holds, const char* option, double value, const char* expected) const {
    if (!holds)
      throw InvalidArgument(fmt::format("{}: {} is {}: expected {}", optimizer_, option, value, expected));
  }

  const char* optimizer_;
};

// An Optimizer over torch::optim::X. With a filter its parameters are in two groups, that with weight decay
// first.
template <typename TorchOptimizer, typename TorchOptions>
Optimizer over(const TorchOptions& options, const DecayFilter& decay_filter, double global_clipnorm) {
  internal::OptimizerSpec spec;
  spec.global_clipnorm = global_clipnorm;
  spec.make = [options](std::vector<std::vector<at::Tensor>> by_group) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (auto& tensors : by_group) {
      auto own = std::make_unique<TorchOptions>(options);
      if (!groups.empty()) own->weight_decay(0);
      groups.emplace_back(std::move(tensors), std::move(own));
    }
    return std::make_unique<TorchOptimizer>(std::move(groups), options);
  };
  if (decay_filter && options.weight_decay() != 0) {
    spec.option_groups = 2;
    spec.option_group = [decay_filter](const std::string& name, const at::Tensor& parameter) {
      return decay_filter(name, parameter) ? 0 : 1;
    };
  }
  return Optimizer(std::move(spec), options.lr());
}

// Adam and AdamW have the same options, and differ in what weight decay does.
template <typename TorchOptimizer, typename TorchOptions, typename Options>
Optimizer adam(const char* name, const Options& options) {
  const Checks check(name);
  check.positive("learning_rate", options.learning_rate);
  check.below_one("beta_1", options.beta_1);
  check.below_one("beta_2", options.beta_2);
  check.positive("epsilon", options.epsilon);
  check.not_negative("weight_decay", options.weight_decay);
  check.not_negative("global_clipnorm", options.global_clipnorm);
  return over<TorchOptimizer>(TorchOptions(options.learning_rate)
                                  .betas(std::make_tuple(options.beta_1, options.beta_2))
                                  .eps(options.epsilon)
                                  .weight_decay(options.weight_decay)
                                  .amsgrad(options.amsgrad),
                              options.decay_filter, options.global_clipnorm);
}

}  // namespace

bool kernels_only(const std::string&, const at::Tensor& parameter) {
  return parameter.dim() >= 2;
}

Optimizer SGD(SGDOptions options) {
  const Checks check("SGD");
  check.positive("learning_rate", options.learning_rate);
  check.at_most_one("momentum", options.momentum);
  check.not_negative("weight_decay", options.weight_decay);
  check.not_negative("global_clipnorm", options.global_clipnorm);
  if (options.nesterov && options.momentum == 0) {
    throw InvalidArgument("SGD: nesterov needs a momentum above 0, e.g. 0.9");
  }
  return over<torch::optim::SGD>(torch::optim::SGDOptions(options.learning_rate)
                                     .momentum(options.momentum)
                                     .nesterov(options.nesterov)
                                     .weight_decay(options.weight_decay),
                                 options.decay_filter, options.global_clipnorm);
}

Optimizer Adam(AdamOptions options) {
  return adam<torch::optim::Adam, torch::optim::AdamOptions>("Adam", options);
}

Optimizer AdamW(AdamWOptions options) {
  return adam<torch::optim::AdamW, torch::optim::AdamWOptions>("AdamW", options);
}

Optimizer RMSprop(RMSpropOptions options) {
  const Checks check("RMSprop");
  check.positive("learning_rate", options.learning_rate);
  check.below_one("rho", options.rho);
  check.at_most_one("momentum", options.momentum);
  check.positive("epsilon", options.epsilon);
  check.not_negative("weight_decay", options.weight_decay);
  check.not_negative("global_clipnorm", options.global_clipnorm);
  return over<torch::optim::RMSprop>(torch::optim::RMSpropOptions(options.learning_rate)
                                         .alpha(options.rho)
                                         .momentum(options.momentum)
                                         .eps(options.epsilon)
                                         .centered(options.centered)
                                         .weight_decay(options.weight_decay),
                                     options.decay_filter, options.global_clipnorm);
}

Optimizer Adagrad(AdagradOptions options) {
  const Checks check("Adagrad");
  check.positive("learning_rate", options.learning_rate);
  check.not_negative("initial_accumulator_value", options.initial_accumulator_value);
  check.positive("epsilon", options.epsilon);
  check.not_negative("weight_decay", options.weight_decay);
  check.not_negative("global_clipnorm", options.global_clipnorm);
  return over<torch::optim::Adagrad>(torch::optim::AdagradOptions(options.learning_rate)
                                         .initial_accumulator_value(options.initial_accumulator_value)
                                         .eps(options.epsilon)
                                         .weight_decay(options.weight_decay),
                                     options.decay_filter, options.global_clipnorm);
}

Optimizer Ftrl(FtrlOptions options) {
  const Checks check("Ftrl");
  check.positive("learning_rate", options.learning_rate);
  check.not_negative("-learning_rate_power", -options.learning_rate_power);
  check.not_negative("initial_accumulator_value", options.initial_accumulator_value);
  check.not_negative("l1_regularization_strength", options.l1_regularization_strength);
  check.not_negative("l2_regularization_strength", options.l2_regularization_strength);
  check.not_negative("l2_shrinkage_regularization_strength", options.l2_shrinkage_regularization_strength);
  check.not_negative("beta", options.beta);
  check.not_negative("global_clipnorm", options.global_clipnorm);
  const auto ours = internal::FtrlTorchOptions(options.learning_rate)
                        .lr_power(options.learning_rate_power)
                        .initial_accumulator_value(options.initial_accumulator_value)
                        .l1(options.l1_regularization_strength)
                        .l2(options.l2_regularization_strength)
                        .l2_shrinkage(options.l2_shrinkage_regularization_strength)
                        .beta(options.beta);
  internal::OptimizerSpec spec;
  spec.global_clipnorm = options.global_clipnorm;
  spec.make = [ours](std::vector<std::vector<at::Tensor>> by_group) {
    return std::make_unique<internal::Ftrl>(std::move(by_group.front()), ours);
  };
  return Optimizer(std::move(spec), options.learning_rate);
}

Optimizer from_torch(std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> make,
                     double global_clipnorm) {
  Checks("from_torch").not_negative("global_clipnorm", global_clipnorm);
  const auto probe = make ? make({at::zeros({1})}) : nullptr;
  if (!probe || probe->param_groups().empty()) {
    throw InvalidArgument("from_torch: make() gave no optimizer, or one that dropped its parameters");
  }
  const double learning_rate = probe->param_groups().front().options().get_lr();
  internal::OptimizerSpec spec;
  spec.global_clipnorm = global_clipnorm;
  spec.make = [make = std::move(make)](std::vector<std::vector<at::Tensor>> by_group) {
    return make(std::move(by_group.front()));
  };
  return Optimizer(std::move(spec), learning_rate);
}

}  // namespace tandem::optimizers
