#include "tandem/optimizers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <map>

#include "support/oracle.h"
#include "support/tensors.h"
#include "tandem/error.h"
#include "train/optimizer_binding.h"

namespace tandem {
namespace {

using testing_support::near;

std::unique_ptr<torch::optim::Optimizer> make(const Optimizer& optimizer,
                                              std::vector<std::vector<at::Tensor>> by_group) {
  return optimizer.binding().spec.make(std::move(by_group));
}

// One step from `start` with a gradient of ones in every group.
std::vector<at::Tensor> step_with_ones(const Optimizer& optimizer, double start) {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<at::Tensor>> by_group;
  for (int group = 0; group < optimizer.binding().spec.option_groups; ++group) {
    parameters.push_back(torch::full({1}, start, torch::kDouble));
    parameters.back().mutable_grad() = torch::ones({1}, torch::kDouble);
    by_group.push_back({parameters.back()});
  }
  make(optimizer, by_group)->step();
  return parameters;
}

TEST(Optimizers, StepAsKeras) {
  const std::map<std::string, Optimizer> optimizers{
      {"SGD", optimizers::SGD()},
      {"SGD momentum .9", optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9})},
      {"SGD nesterov", optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})},
      {"Adam", optimizers::Adam()},
      {"AdamW", optimizers::AdamW()},
      {"RMSprop", optimizers::RMSprop()},
      {"Adagrad", optimizers::Adagrad()},
      {"Ftrl", optimizers::Ftrl()},
  };
  std::size_t compared = 0;
  for (const auto& example : testing_support::read_oracle("optimizers")) {
    const auto name = example["optimizer"].get<std::string>();
    ASSERT_TRUE(optimizers.contains(name)) << name;
    at::Tensor parameter = testing_support::row(example["start"]);
    const auto optimizer = make(optimizers.at(name), {{parameter}});
    for (std::size_t step = 0; step < example["gradients"].size(); ++step) {
      parameter.mutable_grad() = testing_support::row(example["gradients"][step]);
      optimizer->step();
      EXPECT_TRUE(near(parameter, testing_support::row(example["values"][step])))
          << name << ", step " << step;
    }
    ++compared;
  }
  EXPECT_EQ(compared, optimizers.size());
}

// As TensorFlow's documentation of tf.keras.optimizers has them.
TEST(Optimizers, HaveKerasDefaults) {
  const auto options_of = [](const Optimizer& optimizer) {
    return make(optimizer, {{torch::zeros({1})}})->param_groups()[0].options().clone();
  };
  {
    const auto options = options_of(optimizers::SGD());
    const auto& sgd = static_cast<const torch::optim::SGDOptions&>(*options);
    EXPECT_DOUBLE_EQ(sgd.lr(), 0.01);
    EXPECT_DOUBLE_EQ(sgd.momentum(), 0);
    EXPECT_FALSE(sgd.nesterov());
    EXPECT_DOUBLE_EQ(sgd.weight_decay(), 0);
  }
  {
    const auto options = options_of(optimizers::Adam());
    const auto& adam = static_cast<const torch::optim::AdamOptions&>(*options);
    EXPECT_DOUBLE_EQ(adam.lr(), 0.001);
    EXPECT_EQ(adam.betas(), std::make_tuple(0.9, 0.999));
    EXPECT_DOUBLE_EQ(adam.eps(), 1e-7);
    EXPECT_FALSE(adam.amsgrad());
  }
  {
    const auto options = options_of(optimizers::RMSprop());
    const auto& rmsprop = static_cast<const torch::optim::RMSpropOptions&>(*options);
    EXPECT_DOUBLE_EQ(rmsprop.lr(), 0.001);
    EXPECT_DOUBLE_EQ(rmsprop.alpha(), 0.9);
    EXPECT_DOUBLE_EQ(rmsprop.momentum(), 0);
    EXPECT_DOUBLE_EQ(rmsprop.eps(), 1e-7);
    EXPECT_FALSE(rmsprop.centered());
  }
  {
    const auto options = options_of(optimizers::Adagrad());
    const auto& adagrad = static_cast<const torch::optim::AdagradOptions&>(*options);
    EXPECT_DOUBLE_EQ(adagrad.lr(), 0.001);
    EXPECT_DOUBLE_EQ(adagrad.initial_accumulator_value(), 0.1);
    EXPECT_DOUBLE_EQ(adagrad.eps(), 1e-7);
  }
  const optimizers::FtrlOptions ftrl;
  EXPECT_DOUBLE_EQ(optimizers::Ftrl().learning_rate(), 0.001);
  EXPECT_DOUBLE_EQ(ftrl.learning_rate_power, -0.5);
  EXPECT_DOUBLE_EQ(ftrl.initial_accumulator_value, 0.1);
  EXPECT_DOUBLE_EQ(ftrl.l1_regularization_strength, 0);
  EXPECT_DOUBLE_EQ(ftrl.l2_regularization_strength, 0);
  EXPECT_DOUBLE_EQ(ftrl.l2_shrinkage_regularization_strength, 0);
  EXPECT_DOUBLE_EQ(ftrl.beta, 0);
}

TEST(Optimizers, BeginWithTheRateTheyWereGiven) {
  const std::vector<Optimizer> all{
      optimizers::SGD({.learning_rate = 0.25}),     optimizers::Adam({.learning_rate = 0.25}),
      optimizers::AdamW({.learning_rate = 0.25}),   optimizers::RMSprop({.learning_rate = 0.25}),
      optimizers::Adagrad({.learning_rate = 0.25}), optimizers::Ftrl({.learning_rate = 0.25})};
  for (const Optimizer& optimizer : all) {
    EXPECT_DOUBLE_EQ(optimizer.learning_rate(), 0.25);
    const auto made = make(optimizer, {{torch::zeros({1})}});
    EXPECT_DOUBLE_EQ(made->param_groups().front().options().get_lr(), 0.25);
  }
}

TEST(Optimizers, PassEveryOptionOn) {
  {
    const auto made = make(optimizers::SGD({.momentum = 0.5, .nesterov = true, .weight_decay = 0.25}),
                           {{torch::zeros({1})}});
    const auto& options = static_cast<torch::optim::SGDOptions&>(made->param_groups()[0].options());
    EXPECT_DOUBLE_EQ(options.momentum(), 0.5);
    EXPECT_TRUE(options.nesterov());
    EXPECT_DOUBLE_EQ(options.weight_decay(), 0.25);
  }
  {
    const auto made =
        make(optimizers::AdamW({.beta_1 = 0.5, .beta_2 = 0.25, .epsilon = 0.125, .amsgrad = true}),
             {{torch::zeros({1})}});
    const auto& options = static_cast<torch::optim::AdamWOptions&>(made->param_groups()[0].options());
    EXPECT_EQ(options.betas(), std::make_tuple(0.5, 0.25));
    EXPECT_DOUBLE_EQ(options.eps(), 0.125);
    EXPECT_TRUE(options.amsgrad());
    EXPECT_DOUBLE_EQ(options.weight_decay(), 0.004);
  }
  {
    const auto made =
        make(optimizers::RMSprop({.rho = 0.5, .momentum = 0.25, .epsilon = 0.125, .centered = true}),
             {{torch::zeros({1})}});
    const auto& options = static_cast<torch::optim::RMSpropOptions&>(made->param_groups()[0].options());
    EXPECT_DOUBLE_EQ(options.alpha(), 0.5);
    EXPECT_DOUBLE_EQ(options.momentum(), 0.25);
    EXPECT_DOUBLE_EQ(options.eps(), 0.125);
    EXPECT_TRUE(options.centered());
  }
  {
    const auto made = make(optimizers::Adagrad({.initial_accumulator_value = 0.5, .epsilon = 0.125}),
                           {{torch::zeros({1})}});
    const auto& options = static_cast<torch::optim::AdagradOptions&>(made->param_groups()[0].options());
    EXPECT_DOUBLE_EQ(options.initial_accumulator_value(), 0.5);
    EXPECT_DOUBLE_EQ(options.eps(), 0.125);
  }
}

TEST(WeightDecay, AppliesToAllWithoutAFilter) {
  const Optimizer optimizer = optimizers::SGD({.learning_rate = 0.5, .weight_decay = 0.25});
  EXPECT_EQ(optimizer.binding().spec.option_groups, 1);
  EXPECT_DOUBLE_EQ(step_with_ones(optimizer, 4)[0].item<double>(), 4 - 0.5 * (1 + 0.25 * 4));
}

TEST(WeightDecay, SparesTheSecondGroup) {
  const Optimizer optimizer =
      optimizers::SGD({.learning_rate = 0.5, .weight_decay = 0.25, .decay_filter = optimizers::kernels_only});
  ASSERT_EQ(optimizer.binding().spec.option_groups, 2);
  const auto values = step_with_ones(optimizer, 4);
  EXPECT_DOUBLE_EQ(values[0].item<double>(), 4 - 0.5 * (1 + 0.25 * 4));
  EXPECT_DOUBLE_EQ(values[1].item<double>(), 4 - 0.5);
}

// At the first step Adam moves by the rate, whatever the gradient; only decoupled decay goes further.
TEST(WeightDecay, IsDecoupledInAdamW) {
  const Optimizer l2 = optimizers::Adam({.learning_rate = 0.5, .weight_decay = 0.25});
  EXPECT_NEAR(step_with_ones(l2, 4)[0].item<double>(), 3.5, 1e-6);
  const Optimizer decoupled = optimizers::AdamW({.learning_rate = 0.5, .weight_decay = 0.25});
  EXPECT_NEAR(step_with_ones(decoupled, 4)[0].item<double>(), 4 * (1 - 0.5 * 0.25) - 0.5, 1e-6);
}

TEST(WeightDecay, PutsEachParameterIntoTheGroupItsFilterSays) {
  const Optimizer optimizer =
      optimizers::Adam({.weight_decay = 0.1, .decay_filter = optimizers::kernels_only});
  const auto& group = optimizer.binding().spec.option_group;
  EXPECT_EQ(group("conv.weight", torch::zeros({8, 3, 3, 3})), 0);
  EXPECT_EQ(group("dense.weight", torch::zeros({8, 3})), 0);
  EXPECT_EQ(group("dense.bias", torch::zeros({8})), 1);
}

TEST(WeightDecay, OfZeroNeedsNoGroups) {
  const Optimizer optimizer = optimizers::SGD({.decay_filter = optimizers::kernels_only});
  EXPECT_EQ(optimizer.binding().spec.option_groups, 1);
}

TEST(Optimizers, TakeGroupsWithoutTensors) {
  const auto filter = optimizers::kernels_only;
  const std::vector<Optimizer> all{
      optimizers::SGD({.momentum = 0.9, .weight_decay = 0.1, .decay_filter = filter}),
      optimizers::Adam({.weight_decay = 0.1, .decay_filter = filter}),
      optimizers::AdamW({.weight_decay = 0.1, .decay_filter = filter}),
      optimizers::RMSprop({.weight_decay = 0.1, .decay_filter = filter}),
      optimizers::Adagrad({.weight_decay = 0.1, .decay_filter = filter})};
  for (const Optimizer& optimizer : all) {
    for (const std::size_t place : {0, 1}) {
      at::Tensor parameter = torch::ones({2});
      parameter.mutable_grad() = torch::ones({2});
      std::vector<std::vector<at::Tensor>> by_group(2);
      by_group[place].push_back(parameter);
      const auto made = make(optimizer, by_group);
      EXPECT_EQ(made->param_groups().size(), 2U);
      made->step();
      EXPECT_LT(parameter[0].item<float>(), 1);
    }
    make(optimizer, {{}, {}})->step();
  }
}

TEST(Optimizers, RefuseOptionsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double rate : {0.0, -0.1, nan, infinity}) {
    EXPECT_THROW(optimizers::SGD({.learning_rate = rate}), InvalidArgument) << rate;
    EXPECT_THROW(optimizers::Adam({.learning_rate = rate}), InvalidArgument) << rate;
    EXPECT_THROW(optimizers::AdamW({.learning_rate = rate}), InvalidArgument) << rate;
    EXPECT_THROW(optimizers::RMSprop({.learning_rate = rate}), InvalidArgument) << rate;
    EXPECT_THROW(optimizers::Adagrad({.learning_rate = rate}), InvalidArgument) << rate;
    EXPECT_THROW(optimizers::Adam({.epsilon = rate}), InvalidArgument) << rate;
    EXPECT_THROW(optimizers::RMSprop({.epsilon = rate}), InvalidArgument) << rate;
    EXPECT_THROW(optimizers::Adagrad({.epsilon = rate}), InvalidArgument) << rate;
  }
  for (const double value : {-0.1, 1.1, nan}) {
    EXPECT_THROW(optimizers::SGD({.momentum = value}), InvalidArgument) << value;
    EXPECT_THROW(optimizers::RMSprop({.momentum = value}), InvalidArgument) << value;
  }
  for (const double value : {-0.1, 1.0, nan}) {
    EXPECT_THROW(optimizers::Adam({.beta_1 = value}), InvalidArgument) << value;
    EXPECT_THROW(optimizers::AdamW({.beta_2 = value}), InvalidArgument) << value;
    EXPECT_THROW(optimizers::RMSprop({.rho = value}), InvalidArgument) << value;
  }
  for (const double value : {-0.1, nan, infinity}) {
    EXPECT_THROW(optimizers::SGD({.weight_decay = value}), InvalidArgument) << value;
    EXPECT_THROW(optimizers::AdamW({.weight_decay = value}), InvalidArgument) << value;
    EXPECT_THROW(optimizers::Adagrad({.initial_accumulator_value = value}), InvalidArgument) << value;
  }
  EXPECT_THROW(optimizers::SGD({.nesterov = true}), InvalidArgument);
}

TEST(Optimizers, SayWhichOptionIsWrong) {
  try {
    optimizers::Adam({.beta_2 = 1.5});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "Adam: beta_2 is 1.5: expected 0 or above, and below 1");
  }
}

TEST(FromTorch, RunsWhatMakeMakes) {
  const Optimizer optimizer = optimizers::from_torch([](std::vector<at::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.5));
  });
  EXPECT_DOUBLE_EQ(optimizer.learning_rate(), 0.5);
  EXPECT_EQ(optimizer.binding().spec.option_groups, 1);
  EXPECT_DOUBLE_EQ(step_with_ones(optimizer, 4)[0].item<double>(), 3.5);
}

TEST(FromTorch, RefusesToMakeNothing) {
  EXPECT_THROW(optimizers::from_torch({}), InvalidArgument);
  EXPECT_THROW(optimizers::from_torch([](std::vector<at::Tensor>) { return nullptr; }), InvalidArgument);
}

}  // namespace
}  // namespace tandem
