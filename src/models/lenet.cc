#include "tandem/models/lenet.h"

namespace tandem::models {

LeNetImpl::LeNetImpl(std::int64_t classes) {
  conv1_ = register_module("conv1", torch::nn::Conv2d(1, 20, 5));
  conv2_ = register_module("conv2", torch::nn::Conv2d(20, 50, 5));
  fc1_ = register_module("fc1", torch::nn::Linear(50 * 4 * 4, 500));
  fc2_ = register_module("fc2", torch::nn::Linear(500, classes));
}

at::Tensor LeNetImpl::forward(const at::Tensor& x) {
  at::Tensor h = at::max_pool2d(conv1_(x), 2, 2);
  h = at::max_pool2d(conv2_(h), 2, 2);
  return fc2_(at::relu(fc1_(h.flatten(1))));
}

}  // namespace tandem::models
