#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace tandem {

// A named function of (y_true, y_pred) that gives one loss per example: a tensor of [rows]. How the losses of
// a batch are combined is not its business: fit divides their sum by the rows of the global step.
struct Loss {
  std::string name;
  std::function<at::Tensor(const at::Tensor& y_true, const at::Tensor& y_pred)> per_example;
};

namespace losses {

struct CrossentropyOptions {
  // Whether y_pred are raw scores. False: probabilities, as a model that ends in softmax (or sigmoid) gives.
  bool from_logits = true;
};

// y_true: class numbers [rows]; y_pred: [rows, classes].
Loss sparse_categorical_crossentropy(CrossentropyOptions options = {});
// y_true: one row of probabilities per example, [rows, classes].
Loss categorical_crossentropy(CrossentropyOptions options = {});
// y_true: 0 or 1, of y_pred's shape; the mean over all but the first dimension.
Loss binary_crossentropy(CrossentropyOptions options = {});
// The mean over all but the first dimension.
Loss mean_squared_error();
Loss mean_absolute_error();

}  // namespace losses

// The mean loss over the global batch, as one replica's part of it: sum(per_example x sample_weight) / global
// rows. global_batch_size: the rows of the whole step (ReplicaContext::global_rows()).
at::Tensor compute_average_loss(const at::Tensor& per_example, std::int64_t global_batch_size,
                                const at::Tensor& sample_weight = {});

}  // namespace tandem
