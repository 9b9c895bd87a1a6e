#pragma once

#include <torch/torch.h>

namespace tandem {

struct SyncBatchNormOptions {
  std::int64_t num_features = 0;
  double eps = 1e-5;
  // libtorch's: the weight of the new value. Keras's momentum m is 1 - m here.
  double momentum = 0.1;
  bool affine = true;
};

// Batch norm over the rows of all replicas in sync: N replicas normalise as one would with the whole batch,
// in forward and in backward. For [rows, features, ...]. Names and shapes of parameters and buffers are those
// of torch::nn::BatchNorm2d.
//
// In training, forward and backward are collectives: every replica must run them, also with a piece of no
// rows (fit does). Outside Strategy::run(), and in evaluation, it is an ordinary batch norm.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  explicit SyncBatchNormImpl(SyncBatchNormOptions options);
  explicit SyncBatchNormImpl(std::int64_t num_features)
      : SyncBatchNormImpl(SyncBatchNormOptions{num_features}) {}

  at::Tensor forward(const at::Tensor& x);

 private:
  SyncBatchNormOptions options_;
  at::Tensor weight_, bias_, running_mean_, running_var_, num_batches_tracked_;
};
TORCH_MODULE(SyncBatchNorm);

// While it lives, every batch norm that this thread computes in training (torch::nn::BatchNorm1d to 3d,
// unmodified) is synchronised. Model does this around forward if ModelOptions::sync_batch_norm is set.
class SyncBatchNormScope {
 public:
  explicit SyncBatchNormScope(bool on = true);
  ~SyncBatchNormScope();
  SyncBatchNormScope(const SyncBatchNormScope&) = delete;
  SyncBatchNormScope& operator=(const SyncBatchNormScope&) = delete;

 private:
  bool outer_;
};

}  // namespace tandem
