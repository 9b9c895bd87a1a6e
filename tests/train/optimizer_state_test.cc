#include <gtest/gtest.h>

#include "strategy/updater.h"
#include "support/training.h"
#include "tandem/tandem.h"
#include "train/optimizer_binding.h"

namespace tandem {
namespace {

using internal::OptimizerState;
using testing_support::distance;
using testing_support::expect_near;
using testing_support::mirrored;

// Linear layers and a convolution, the convolution's kernel in channels-last strides.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(3, 8, 3));
    fc = register_module("fc", torch::nn::Linear(8, 5));
    unused = register_module("unused", torch::nn::Linear(4, 4));
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return fc(torch::relu(conv(x)).mean({2, 3})); }

  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear fc{nullptr}, unused{nullptr};
};
TORCH_MODULE(Net);

Dataset data() {
  torch::manual_seed(2);
  return Dataset::from_tensors(torch::randn({60, 3, 6, 6}, torch::kDouble), torch::randint(5, {60}))
      .batch(12);
}

Model make(const Strategy& strategy, Optimizer optimizer) {
  return strategy.scope([&] {
    Model m([] { return Net(); }, {.seed = 1});
    m.compile({.optimizer = optimizer, .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });
}

internal::Updater& updater(const Model& model) {
  return *model.optimizer().binding().updater;
}

void fit(Model& model) {
  model.fit(data(), {.verbose = Verbose::kSilent});
}

using MakeOptimizer = Optimizer (*)();
class StateOf : public testing::TestWithParam<MakeOptimizer> {};
INSTANTIATE_TEST_SUITE_P(
    Optimizers, StateOf,
    testing::Values(MakeOptimizer([] { return optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}); }),
                    MakeOptimizer([] { return optimizers::Adam({.amsgrad = true}); }),
                    MakeOptimizer([] { return optimizers::AdamW(); }),
                    MakeOptimizer([] { return optimizers::Ftrl({.learning_rate = 0.05}); }),
                    MakeOptimizer([] { return optimizers::RMSprop({.momentum = 0.5, .centered = true}); }),
                    MakeOptimizer([] { return optimizers::Adagrad(); })));

TEST_P(StateOf, IsByParameterNameInLogicalLayoutWhateverTheReplicas) {
  Model one = make(mirrored(1), GetParam()());
  fit(one);
  const OptimizerState expected = updater(one).state();
  ASSERT_GE(expected.size(), 4u);
  for (const int replicas : {2, 3}) {
    Model many = make(mirrored(replicas), GetParam()());
    fit(many);
    const OptimizerState state = updater(many).state();
    ASSERT_EQ(state.size(), expected.size());
    for (const auto& [name, slots] : expected) {
      for (const auto& [slot, tensor] : slots) {
        const at::Tensor& got = state.at(name).at(slot);
        EXPECT_EQ(got.sizes(), tensor.sizes()) << name << " " << slot;
        EXPECT_TRUE(got.is_contiguous());
        if (!internal::is_counter(got)) {
          EXPECT_EQ(got.sizes(), many.values().at(name).sizes());
        }
        EXPECT_LT(distance(got, tensor), 1e-9) << name << " " << slot;
      }
    }
  }
}

TEST_P(StateOf, MovesToAnotherNumberOfReplicasInMidTraining) {
  Model whole = make(mirrored(1), GetParam()());
  fit(whole);
  fit(whole);

  Model first = make(mirrored(3), GetParam()());
  fit(first);
  Model second = make(mirrored(2), GetParam()());
  {
    const torch::NoGradGuard no_grad;
    const auto values = first.values();
    second.strategy().run([&](ReplicaContext& replica) {
      for (auto& item : second.on(replica).module().named_parameters())
        item.value().detach().copy_(values.at(item.key()));
    });
  }
  updater(second).load_state(updater(first).state());
  fit(second);
  expect_near(second.values(), whole.values(), 1e-9);
}

TEST(State, RefusesNamesAndShapesThatDoNotFit) {
  Model model = make(mirrored(2), optimizers::Adam());
  EXPECT_THROW(updater(model).load_state({{"nothing", {{"exp_avg", torch::zeros({1})}}}}), InvalidArgument);
  EXPECT_THROW(updater(model).load_state({{"fc.bias", {{"exp_avg", torch::zeros({4})}}}}), InvalidArgument);
}

TEST(MissingGradients, LeaveAParameterOutOfTheUpdate) {
  // Weight decay would shrink it, were its gradient taken for zero.
  Model model =
      make(mirrored(2), optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.5}));
  const auto before = model.values();
  fit(model);
  const auto after = model.values();
  EXPECT_TRUE(after.at("unused.weight").equal(before.at("unused.weight")));
  EXPECT_FALSE(after.at("fc.weight").equal(before.at("fc.weight")));
  EXPECT_EQ(updater(model).state().count("unused.weight"), 0u);
  EXPECT_EQ(updater(model).state().count("fc.weight"), 1u);
}

// A branch that is used every other step: its Adam counts only those steps.
struct SometimesImpl : torch::nn::Module {
  SometimesImpl() {
    a = register_module("a", torch::nn::Linear(6, 6));
    b = register_module("b", torch::nn::Linear(6, 6));
    c = register_module("c", torch::nn::Linear(6, 3));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = a(x);
    if (step++ % 2 == 1) h = b(h);
    return c(h);
  }
  int step = 0;
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
};
TORCH_MODULE(Sometimes);

TEST(MissingGradients, ThatComeAndGoAreCountedPerParameterAsInPlainLibtorch) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({48, 6}, torch::kDouble);
  const at::Tensor y = torch::randint(3, {48});
  const auto strategy = mirrored(2);
  Model model = strategy.scope([] {
    Model m([] { return Sometimes(); }, {.seed = 1});
    m.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
               .loss = losses::sparse_categorical_crossentropy()});
    return m;
  });

  Sometimes net;
  {
    const torch::NoGradGuard no_grad;
    const auto values = model.values();
    for (auto& item : net->named_parameters()) item.value().copy_(values.at(item.key()));
  }
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01).eps(1e-7));
  for (int step = 0; step < 6; ++step) {
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
    const at::Tensor rows = x.slice(0, 8 * step, 8 * step + 8);
    torch::nn::functional::cross_entropy(net(rows), y.slice(0, 8 * step, 8 * step + 8)).backward();
    optimizer.step();
  }
  model.fit(Dataset::from_tensors(x, y).batch(8), {.verbose = Verbose::kSilent});
  testing_support::Values expected;
  for (const auto& item : net->named_parameters()) expected[item.key()] = item.value().detach();
  expect_near(model.values(), expected, 1e-9);
  EXPECT_EQ(updater(model).state().at("a.weight").at("step").item<std::int64_t>(), 6);
  EXPECT_EQ(updater(model).state().at("b.weight").at("step").item<std::int64_t>(), 3);
}

}  // namespace
}  // namespace tandem
