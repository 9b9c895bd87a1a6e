#include "tandem/models/resnet.h"

#include <fmt/format.h>

#include <array>

#include "models/channels_last.h"
#include "tandem/error.h"

namespace tandem::models {
namespace {

torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// What brings the input of a block to the shape of its output; empty where it has that shape.
torch::nn::Sequential projection(std::int64_t in, std::int64_t out, std::int64_t stride) {
  if (stride == 1 && in == out) return nullptr;
  return torch::nn::Sequential(conv(in, out, 1, stride), torch::nn::BatchNorm2d(out));
}

class BasicBlockImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlockImpl(std::int64_t in, std::int64_t width, std::int64_t stride) {
    conv1_ = register_module("conv1", conv(in, width, 3, stride));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(width));
    conv2_ = register_module("conv2", conv(width, width, 3, 1));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(width));
    downsample_ = projection(in, width, stride);
    if (!downsample_.is_empty()) register_module("downsample", downsample_);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = bn1_(conv1_(x)).relu_();
    h = bn2_(conv2_(h));
    h += downsample_.is_empty() ? x : downsample_->forward(x);
    return h.relu_();
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(BasicBlock);

// Three by three in a quarter of the channels.
class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride) {
    const std::int64_t out = width * kExpansion;
    conv1_ = register_module("conv1", conv(in, width, 1, 1));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(width));
    conv2_ = register_module("conv2", conv(width, width, 3, stride));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(width));
    conv3_ = register_module("conv3", conv(width, out, 1, 1));
    bn3_ = register_module("bn3", torch::nn::BatchNorm2d(out));
    downsample_ = projection(in, out, stride);
    if (!downsample_.is_empty()) register_module("downsample", downsample_);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = bn1_(conv1_(x)).relu_();
    h = bn2_(conv2_(h)).relu_();
    h = bn3_(conv3_(h));
    h += downsample_.is_empty() ? x : downsample_->forward(x);
    return h.relu_();
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(Bottleneck);

// `in` becomes the channels of the stage's output.
template <typename Block>
torch::nn::Sequential make_stage(std::int64_t& in, std::int64_t width, std::int64_t stride,
                                 std::int64_t blocks) {
  torch::nn::Sequential stage;
  for (std::int64_t i = 0; i < blocks; ++i) {
    stage->push_back(Block(in, width, i == 0 ? stride : 1));
    in = width * Block::ContainedType::kExpansion;
  }
  return stage;
}

// He's initial values. torchvision scales by what a kernel writes (fan out), the paper by what it reads.
void initialize_kernels(torch::nn::Module& module, torch::nn::init::FanModeType fan) {
  for (const auto& child : module.modules(/*include_self=*/false)) {
    if (auto* layer = child->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(layer->weight, 0, fan, torch::kReLU);
    }
  }
}

struct ImageNetLayout {
  std::int64_t size;
  bool bottleneck;
  std::array<std::int64_t, 4> blocks;
};

constexpr std::array kImageNetLayouts{
    ImageNetLayout{18, false, {2, 2, 2, 2}},
    ImageNetLayout{34, false, {3, 4, 6, 3}},
    ImageNetLayout{50, true, {3, 4, 6, 3}},
    ImageNetLayout{101, true, {3, 4, 23, 3}},
};

const ImageNetLayout& image_net_layout(std::int64_t size) {
  for (const ImageNetLayout& layout : kImageNetLayouts) {
    if (layout.size == size) return layout;
  }
  throw InvalidArgument(
      fmt::format("a ResNet for ImageNet of size {} does not exist here: expected 18, 34, 50 or 101", size));
}

}  // namespace

ResNetCifarImpl::ResNetCifarImpl(std::int64_t size, std::int64_t classes) {
  if (size < 8 || (size - 2) % 6 != 0) {
    throw InvalidArgument(fmt::format(
        "a ResNet for CIFAR of size {} does not exist: expected 20, 32, 44, 56, 110 (6n + 2)", size));
  }
  const std::int64_t blocks = (size - 2) / 6;
  std::int64_t channels = 16;
  conv1_ = register_module("conv1", conv(3, channels, 3, 1));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(channels));
  layer1_ = register_module("layer1", make_stage<BasicBlock>(channels, 16, 1, blocks));
  layer2_ = register_module("layer2", make_stage<BasicBlock>(channels, 32, 2, blocks));
  layer3_ = register_module("layer3", make_stage<BasicBlock>(channels, 64, 2, blocks));
  fc_ = register_module("fc", torch::nn::Linear(channels, classes));
  initialize_kernels(*this, torch::kFanIn);
  to_channels_last(*this);
}

at::Tensor ResNetCifarImpl::forward(const at::Tensor& x) {
  at::Tensor h = bn1_(conv1_(x.contiguous(at::MemoryFormat::ChannelsLast))).relu_();
  h = layer3_->forward(layer2_->forward(layer1_->forward(h)));
  return fc_(h.mean({2, 3}));
}

ResNetImpl::ResNetImpl(std::int64_t size, std::int64_t classes) {
  const ImageNetLayout& layout = image_net_layout(size);
  std::int64_t channels = 64;
  conv1_ = register_module("conv1", conv(3, channels, 7, 2));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(channels));
  for (int i = 0; i < 4; ++i) {
    const std::int64_t width = std::int64_t{64} << i;
    const std::int64_t stride = i == 0 ? 1 : 2;
    layers_.push_back(register_module(
        fmt::format("layer{}", i + 1),
        layout.bottleneck ? make_stage<Bottleneck>(channels, width, stride, layout.blocks[i])
                          : make_stage<BasicBlock>(channels, width, stride, layout.blocks[i])));
  }
  fc_ = register_module("fc", torch::nn::Linear(channels, classes));
  initialize_kernels(*this, torch::kFanOut);
  to_channels_last(*this);
}

at::Tensor ResNetImpl::forward(const at::Tensor& x) {
  at::Tensor h = bn1_(conv1_(x.contiguous(at::MemoryFormat::ChannelsLast))).relu_();
  h = at::max_pool2d(h, 3, 2, 1);
  for (auto& layer : layers_) h = layer->forward(h);
  return fc_(h.mean({2, 3}));
}

}  // namespace tandem::models
