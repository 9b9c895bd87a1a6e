#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

namespace tandem::internal {

// "Follow the regularised leader", TensorFlow's FtrlV2: libtorch has none, and linear models want it. Every
// element is updated by itself.
struct FtrlTorchOptions : torch::optim::OptimizerCloneableOptions<FtrlTorchOptions> {
  explicit FtrlTorchOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, lr_power) = -0.5;
  TORCH_ARG(double, initial_accumulator_value) = 0.1;
  TORCH_ARG(double, l1) = 0;
  TORCH_ARG(double, l2) = 0;
  TORCH_ARG(double, l2_shrinkage) = 0;
  TORCH_ARG(double, beta) = 0;

 public:
  double get_lr() const override { return lr(); }
  void set_lr(const double rate) override { lr(rate); }
};

struct FtrlParamState : torch::optim::OptimizerCloneableParamState<FtrlParamState> {
  TORCH_ARG(at::Tensor, accumulator);
  TORCH_ARG(at::Tensor, linear);
};

class Ftrl final : public torch::optim::Optimizer {
 public:
  // Remembers something of every element from the start, as libtorch's Adagrad does.
  Ftrl(std::vector<torch::optim::OptimizerParamGroup> groups, const FtrlTorchOptions& options);
  Ftrl(std::vector<at::Tensor> tensors, const FtrlTorchOptions& options)
      : Ftrl({torch::optim::OptimizerParamGroup(std::move(tensors))}, options) {}

  // Without a closure: replicas in sync have none.
  at::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace tandem::internal
