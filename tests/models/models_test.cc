#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "models/relu6.h"
#include "support/oracle.h"
#include "tandem/error.h"
#include "tandem/models/lenet.h"
#include "tandem/models/mlp.h"
#include "tandem/models/mobilenet_v2.h"
#include "tandem/models/resnet.h"

namespace tandem::models {
namespace {

std::int64_t count_parameters(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

void expect_channels_last(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    if (item.value().dim() == 4) {
      EXPECT_TRUE(item.value().is_contiguous(at::MemoryFormat::ChannelsLast)) << item.key();
    }
  }
}

// Every parameter and buffer, by name.
std::map<std::string, at::Tensor> tensors_of(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) tensors[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) tensors[item.key()] = item.value();
  return tensors;
}

// The rule by which tests/python/make_torchvision_models.py fills tensors.
at::Tensor pattern(std::int64_t count, std::int64_t start) {
  return ((torch::arange(count) * 7919 + start * 104729) % 1021).to(at::kFloat) / 1024 - 0.5;
}

void fill(const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  std::int64_t start = -1;
  for (const auto& [name, tensor] : tensors_of(module)) {
    ++start;
    if (name.ends_with("num_batches_tracked")) continue;
    at::Tensor values = pattern(tensor.numel(), start).view(tensor.sizes());
    if (tensor.dim() > 1) {
      values = values * 5 / std::sqrt(static_cast<double>(tensor[0].numel()));
    } else {
      values = values / 4;
      if (name.ends_with("running_var") || name.ends_with("weight")) values += 1;
    }
    tensor.copy_(values);
  }
}

TEST(ResNetCifarTest, HasThePapersParameterCounts) {
  // With projections (option B) where the shape changes.
  EXPECT_EQ(count_parameters(*ResNetCifar(20)), 272474);
  EXPECT_EQ(count_parameters(*ResNetCifar(32)), 466906);
  EXPECT_EQ(count_parameters(*ResNetCifar(44)), 661338);
  EXPECT_EQ(count_parameters(*ResNetCifar(56)), 855770);
  EXPECT_EQ(count_parameters(*ResNetCifar(110)), 1730714);
}

TEST(ResNetCifarTest, RefusesASizeThatDoesNotExist) {
  for (const std::int64_t size : {-4, 0, 2, 21, 51}) EXPECT_THROW(ResNetCifar{size}, InvalidArgument) << size;
}

TEST(ResNetCifarTest, GivesOneScorePerClass) {
  ResNetCifar net(20);
  EXPECT_EQ(net(torch::randn({2, 3, 32, 32})).sizes(), (at::IntArrayRef{2, 10}));
}

TEST(ResNetCifarTest, ComputesInChannelsLast) {
  expect_channels_last(*ResNetCifar(20));
}

// What one of torchvision's models is here.
struct Twin {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

template <typename Holder>
Twin twin(Holder model) {
  return {model.ptr(), [model](const at::Tensor& x) mutable { return model(x); }};
}

Twin make_twin(const std::string& name) {
  if (name == "resnet18") return twin(ResNet(18, 10));
  if (name == "resnet34") return twin(ResNet(34, 10));
  if (name == "resnet50") return twin(ResNet(50, 10));
  if (name == "resnet101") return twin(ResNet(101, 10));
  if (name == "mobilenet_v2") return twin(MobileNetV2(MobileNetV2Options{.classes = 10}));
  if (name == "mobilenet_v2_0.35") return twin(MobileNetV2(MobileNetV2Options{.classes = 10, .width = 0.35}));
  throw std::runtime_error("torchvision has a model that this test does not know: " + name);
}

TEST(TorchvisionTest, ModelsHaveItsNamesAndShapesAndGiveItsScores) {
  const nlohmann::json oracle = testing_support::read_oracle("torchvision_models");
  ASSERT_EQ(oracle["models"].size(), 6u);
  for (const auto& [name, theirs] : oracle["models"].items()) {
    SCOPED_TRACE(name);
    const Twin ours = make_twin(name);
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const auto& [key, tensor] : tensors_of(*ours.module)) shapes[key] = tensor.sizes().vec();
    EXPECT_EQ(shapes, (theirs["tensors"].get<std::map<std::string, std::vector<std::int64_t>>>()));
    expect_channels_last(*ours.module);

    fill(*ours.module);
    ours.module->eval();
    const torch::NoGradGuard no_grad;
    const at::Tensor scores = ours.forward(pattern(2 * 3 * 64 * 64, 0).view({2, 3, 64, 64}) * 4);
    const auto expected = theirs["scores"].get<std::vector<std::vector<double>>>();
    ASSERT_EQ(scores.sizes(), (at::IntArrayRef{2, 10}));
    double largest = 0;
    for (const auto& row : expected) {
      for (const double score : row) largest = std::max(largest, std::abs(score));
    }
    for (int row = 0; row < 2; ++row) {
      for (int k = 0; k < 10; ++k) {
        // Rounding adds up over a hundred layers; a layer that differs would move scores by far more.
        EXPECT_NEAR(scores[row][k].item<double>(), expected[row][k], 2e-3 * largest) << row << ", " << k;
      }
    }
  }
}

TEST(TorchvisionTest, ModelsHaveItsParameterCounts) {
  EXPECT_EQ(count_parameters(*ResNet(18)), 11'689'512);
  EXPECT_EQ(count_parameters(*ResNet(34)), 21'797'672);
  EXPECT_EQ(count_parameters(*ResNet(50)), 25'557'032);
  EXPECT_EQ(count_parameters(*ResNet(101)), 44'549'160);
  EXPECT_EQ(count_parameters(*MobileNetV2()), 3'504'872);
}

TEST(ResNetTest, RefusesASizeThatDoesNotExist) {
  for (const std::int64_t size : {0, 20, 49, 152}) EXPECT_THROW(ResNet{size}, InvalidArgument) << size;
}

TEST(MobileNetV2Test, RefusesOptionsThatCannotWork) {
  const auto make = [](MobileNetV2Options options) { return MobileNetV2(options); };
  EXPECT_THROW(make({.classes = 0}), InvalidArgument);
  EXPECT_THROW(make({.width = 0}), InvalidArgument);
  EXPECT_THROW(make({.width = NAN}), InvalidArgument);
  EXPECT_THROW(make({.dropout = 1}), InvalidArgument);
}

TEST(MobileNetV2Test, GivesEveryParameterAGradient) {
  MobileNetV2 net(MobileNetV2Options{.classes = 2, .width = 0.35});
  net(torch::randn({2, 3, 32, 32})).sum().backward();
  for (const auto& item : net->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(Relu6Test, IsLibtorchsWithItsGradient) {
  const at::Tensor values =
      torch::cat({torch::linspace(-8, 14, 1001), torch::tensor({0.f, 6.f, -0.f, 1e-30f})});
  const at::Tensor weights = torch::linspace(-1, 1, values.numel());
  const auto run = [&](const at::Tensor& at_values,
                       const std::function<at::Tensor(const at::Tensor&)>& relu6) {
    const at::Tensor x = at_values.clone().requires_grad_();
    const at::Tensor y = relu6(x + 0);
    (y * weights).sum().backward();
    return std::pair(y.detach(), x.grad());
  };
  const auto expected = run(values, [](const at::Tensor& x) { return torch::relu6(x); });
  const auto found = run(values, relu6_);
  EXPECT_TRUE(found.first.equal(expected.first));
  EXPECT_TRUE(found.second.equal(expected.second));

  // In bfloat16 the values are rounded, and so their gradients are those of the rounded ones.
  const at::Tensor rounded = values.to(at::kBFloat16);
  const auto of_rounded = run(rounded.to(at::kFloat), [](const at::Tensor& x) { return torch::relu6(x); });
  const auto in_half = run(rounded, relu6_);
  EXPECT_TRUE(in_half.first.to(at::kFloat).equal(of_rounded.first));
  EXPECT_TRUE(in_half.second.to(at::kFloat).equal(of_rounded.second.to(at::kBFloat16).to(at::kFloat)));
}

TEST(Relu6Test, TakesGradientsThatLieOtherwiseInMemory) {
  const at::Tensor x =
      torch::randn({2, 8, 5, 5}).mul_(4).to(at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor weights =
      torch::randn({2, 8, 5, 5}).to(at::kBFloat16);  // contiguous, and so is the gradient
  const at::Tensor leaf = x.clone().requires_grad_();
  const at::Tensor y = relu6_(leaf + 0);
  torch::autograd::backward({y}, {weights});
  const at::Tensor inside = (x > 0).logical_and(x < 6);
  EXPECT_TRUE(leaf.grad().equal(weights.masked_fill(inside.logical_not(), 0)));
}

TEST(LeNetTest, IsCaffes) {
  LeNet net;
  EXPECT_EQ(count_parameters(*net), 431080);
  EXPECT_EQ(net(torch::randn({2, 1, 28, 28})).sizes(), (at::IntArrayRef{2, 10}));
}

TEST(MLPTest, HasTheLayersAskedFor) {
  MLP net(MLPOptions{.inputs = 6, .hidden = {5, 4}, .classes = 3});
  EXPECT_EQ(count_parameters(*net), 6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3);
  EXPECT_EQ(net(torch::randn({7, 2, 3})).sizes(), (at::IntArrayRef{7, 3}));
  EXPECT_EQ(count_parameters(*MLP(MLPOptions{.inputs = 6, .hidden = {}, .classes = 3})), 6 * 3 + 3);
}

TEST(MLPTest, RefusesALayerWithoutUnits) {
  EXPECT_THROW(MLP(MLPOptions{.hidden = {8, 0}}), InvalidArgument);
  EXPECT_THROW(MLP(MLPOptions{.dropout = 1}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::models
