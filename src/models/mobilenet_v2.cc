#include "tandem/models/mobilenet_v2.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/channels_last.h"
#include "models/relu6.h"
#include "tandem/error.h"

namespace tandem::models {
namespace {

// The paper's table: `repeats` blocks that write `channels`, the first of them with the stride.
struct Stage {
  std::int64_t expansion;
  std::int64_t channels;
  std::int64_t repeats;
  std::int64_t stride;
};

constexpr std::array kStages{
    Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2},  Stage{6, 32, 3, 2},  Stage{6, 64, 4, 2},
    Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1},
};
constexpr std::int64_t kFirstChannels = 32;
constexpr std::int64_t kLastChannels = 1280;

// To a multiple of 8, and never down by more than a tenth.
std::int64_t rounded(double channels) {
  const std::int64_t nearest = std::max<std::int64_t>(8, static_cast<std::int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

struct ConvShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t groups = 1;
};

torch::nn::Conv2d conv(const ConvShape& shape) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(shape.in, shape.out, shape.kernel)
                               .stride(shape.stride)
                               .padding(shape.kernel / 2)
                               .groups(shape.groups)
                               .bias(false));
}

// Convolution, batch norm and ReLU6. Not a Sequential, which cannot be in another one.
class ConvNormReluImpl : public torch::nn::Module {
 public:
  explicit ConvNormReluImpl(const ConvShape& shape) {
    conv_ = register_module("0", conv(shape));
    norm_ = register_module("1", torch::nn::BatchNorm2d(shape.out));
  }

  at::Tensor forward(const at::Tensor& x) { return relu6_(norm_(conv_(x))); }

 private:
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
};
TORCH_MODULE(ConvNormRelu);

// Wide inside, narrow at both ends, and the input added where it has the shape.
class InvertedResidualImpl : public torch::nn::Module {
 public:
  InvertedResidualImpl(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t expansion)
      : adds_input_(stride == 1 && in == out) {
    const std::int64_t hidden = in * expansion;
    torch::nn::Sequential layers;
    if (expansion != 1) layers->push_back(ConvNormRelu(ConvShape{.in = in, .out = hidden}));
    layers->push_back(ConvNormRelu(
        ConvShape{.in = hidden, .out = hidden, .kernel = 3, .stride = stride, .groups = hidden}));
    layers->push_back(conv({.in = hidden, .out = out}));
    layers->push_back(torch::nn::BatchNorm2d(out));
    layers_ = register_module("conv", layers);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = layers_->forward(x);
    if (adds_input_) h += x;
    return h;
  }

 private:
  bool adds_input_;
  torch::nn::Sequential layers_{nullptr};
};
TORCH_MODULE(InvertedResidual);

void check(const MobileNetV2Options& options) {
  if (options.classes < 1) {
    throw InvalidArgument(fmt::format("MobileNetV2 for {} classes: expected 1 or more", options.classes));
  }
  if (!(options.width > 0 && options.width <= 16)) {
    throw InvalidArgument(
        fmt::format("MobileNetV2 of width {}: expected more than 0, 16 at most", options.width));
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    throw InvalidArgument(
        fmt::format("MobileNetV2 with dropout {}: expected 0 or more, less than 1", options.dropout));
  }
}

}  // namespace

MobileNetV2Impl::MobileNetV2Impl(MobileNetV2Options options) {
  check(options);
  std::int64_t channels = rounded(kFirstChannels * options.width);
  torch::nn::Sequential features;
  features->push_back(ConvNormRelu(ConvShape{.in = 3, .out = channels, .kernel = 3, .stride = 2}));
  for (const Stage& stage : kStages) {
    const std::int64_t out = rounded(static_cast<double>(stage.channels) * options.width);
    for (std::int64_t i = 0; i < stage.repeats; ++i) {
      features->push_back(InvertedResidual(channels, out, i == 0 ? stage.stride : 1, stage.expansion));
      channels = out;
    }
  }
  const std::int64_t last = rounded(kLastChannels * std::max(1.0, options.width));
  features->push_back(ConvNormRelu(ConvShape{.in = channels, .out = last}));
  features_ = register_module("features", features);
  classifier_ = register_module(
      "classifier",
      torch::nn::Sequential(torch::nn::Dropout(options.dropout), torch::nn::Linear(last, options.classes)));

  // torchvision's initial values.
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* layer = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut);
    } else if (auto* linear = module->as<torch::nn::Linear>()) {
      torch::nn::init::normal_(linear->weight, 0, 0.01);
      torch::nn::init::zeros_(linear->bias);
    }
  }
  to_channels_last(*this);
}

at::Tensor MobileNetV2Impl::forward(const at::Tensor& x) {
  const at::Tensor h = features_->forward(x.contiguous(at::MemoryFormat::ChannelsLast));
  return classifier_->forward(h.mean({2, 3}));
}

}  // namespace tandem::models
