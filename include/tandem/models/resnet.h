#pragma once

#include <torch/torch.h>

namespace tandem::models {

// The ResNets that He et al. trained on CIFAR-10: three stages of 16, 32 and 64 channels, with projections
// where the shape changes. For [rows, 3, 32, 32]. ResNet-20 has 272,474 parameters. Channels-last inside.
class ResNetCifarImpl : public torch::nn::Module {
 public:
  // size: 20, 32, 44, 56, 110: any 6n + 2. Throws InvalidArgument for another.
  explicit ResNetCifarImpl(std::int64_t size, std::int64_t classes = 10);

  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Sequential make_stage(std::int64_t in, std::int64_t out, std::int64_t stride,
                                   std::int64_t blocks);

  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  torch::nn::Sequential layer1_{nullptr}, layer2_{nullptr}, layer3_{nullptr};
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNetCifar);

}  // namespace tandem::models
