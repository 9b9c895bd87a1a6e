#include "tandem/models/resnet.h"

#include <fmt/format.h>

#include "models/channels_last.h"
#include "tandem/error.h"

namespace tandem::models {
namespace {

torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

class BasicBlockImpl : public torch::nn::Module {
 public:
  BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride) {
    conv1_ = register_module("conv1", conv(in, out, 3, stride));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(out));
    conv2_ = register_module("conv2", conv(out, out, 3, 1));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(out));
    if (stride != 1 || in != out) {
      downsample_ = register_module(
          "downsample", torch::nn::Sequential(conv(in, out, 1, stride), torch::nn::BatchNorm2d(out)));
    }
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

}  // namespace

ResNetCifarImpl::ResNetCifarImpl(std::int64_t size, std::int64_t classes) {
  if (size < 8 || (size - 2) % 6 != 0) {
    throw InvalidArgument(fmt::format(
        "a ResNet for CIFAR of size {} does not exist: expected 20, 32, 44, 56, 110 (6n + 2)", size));
  }
  const std::int64_t blocks = (size - 2) / 6;
  conv1_ = register_module("conv1", conv(3, 16, 3, 1));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(16));
  layer1_ = register_module("layer1", make_stage(16, 16, 1, blocks));
  layer2_ = register_module("layer2", make_stage(16, 32, 2, blocks));
  layer3_ = register_module("layer3", make_stage(32, 64, 2, blocks));
  fc_ = register_module("fc", torch::nn::Linear(64, classes));
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* layer = module->as<torch::nn::Conv2d>()) torch::nn::init::kaiming_normal_(layer->weight);
  }
  to_channels_last(*this);
}

torch::nn::Sequential ResNetCifarImpl::make_stage(std::int64_t in, std::int64_t out, std::int64_t stride,
                                                  std::int64_t blocks) {
  torch::nn::Sequential stage;
  for (std::int64_t i = 0; i < blocks; ++i)
    stage->push_back(BasicBlock(i == 0 ? in : out, out, i == 0 ? stride : 1));
  return stage;
}

at::Tensor ResNetCifarImpl::forward(const at::Tensor& x) {
  at::Tensor h = bn1_(conv1_(x.contiguous(at::MemoryFormat::ChannelsLast))).relu_();
  h = layer3_->forward(layer2_->forward(layer1_->forward(h)));
  return fc_(h.mean({2, 3}));
}

}  // namespace tandem::models
