#pragma once

#include <torch/torch.h>

#include <vector>

namespace tandem::models {

// The ResNets that He et al. trained on CIFAR-10: three stages of 16, 32 and 64 channels, with projections
// where the shape changes. For [rows, 3, 32, 32]. ResNet-20 has 272,474 parameters. Channels-last inside.
class ResNetCifarImpl : public torch::nn::Module {
 public:
  // size: 20, 32, 44, 56, 110: any 6n + 2. Throws InvalidArgument for another.
  explicit ResNetCifarImpl(std::int64_t size, std::int64_t classes = 10);

  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  torch::nn::Sequential layer1_{nullptr}, layer2_{nullptr}, layer3_{nullptr};
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNetCifar);

// The ResNets for ImageNet, as torchvision has them: of 50 layers and more the stride is in the 3x3
// convolution of a block ("v1.5"). For [rows, 3, height, width], 32x32 or larger. The names of parameters and
// buffers are torchvision's, so its weights, saved as a safetensors file, load with Model::load_weights();
// with skip_mismatch also for other classes, whose last layer then begins anew.
// Channels-last inside.
//
//   size         18          34          50         101
//   parameters   11,689,512  21,797,672  25,557,032 44,549,160  (1000 classes)
class ResNetImpl : public torch::nn::Module {
 public:
  // Throws InvalidArgument for a size that is none of these.
  explicit ResNetImpl(std::int64_t size, std::int64_t classes = 1000);

  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

}  // namespace tandem::models
