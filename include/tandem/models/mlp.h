#pragma once

#include <torch/torch.h>

#include <vector>

namespace tandem::models {

struct MLPOptions {
  std::int64_t inputs = 784;
  // Units of each hidden layer; empty: none, the model is linear.
  std::vector<std::int64_t> hidden = {128};
  std::int64_t classes = 10;
  // After each hidden layer.
  double dropout = 0.0;
};

// Dense layers with ReLU between: "fc1", "fc2", ... For [rows, ...] with `inputs` values in each row.
class MLPImpl : public torch::nn::Module {
 public:
  // Throws InvalidArgument for a layer without units, or a dropout outside [0, 1).
  explicit MLPImpl(MLPOptions options = {});

  at::Tensor forward(const at::Tensor& x);

 private:
  std::vector<torch::nn::Linear> layers_;
  double dropout_;
};
TORCH_MODULE(MLP);

}  // namespace tandem::models
