#pragma once

#include <torch/torch.h>

namespace tandem::models {

// LeNet as Caffe's: conv 20@5x5, pool, conv 50@5x5, pool, dense 500, ReLU, dense. For [rows, 1, 28, 28];
// 431,080 parameters.
class LeNetImpl : public torch::nn::Module {
 public:
  explicit LeNetImpl(std::int64_t classes = 10);

  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr};
};
TORCH_MODULE(LeNet);

}  // namespace tandem::models
