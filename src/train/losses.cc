#include "tandem/losses.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "tandem/error.h"
#include "train/shapes.h"

namespace tandem {
namespace losses {
namespace {

// Keras's epsilon: keeps the logarithm of a probability finite.
at::Tensor clipped(const at::Tensor& probabilities) {
  return probabilities.clamp(1e-7, 1 - 1e-7);
}

}  // namespace

Loss sparse_categorical_crossentropy(CrossentropyOptions options) {
  return {"sparse_categorical_crossentropy", [options](const at::Tensor& y_true, const at::Tensor& y_pred) {
            const at::Tensor labels = internal::class_numbers(y_true, y_pred);
            // The logarithms of probabilities are scores too: softmax gives the probabilities back.
            const at::Tensor scores = options.from_logits ? y_pred : clipped(y_pred).log();
            return at::cross_entropy_loss(scores, labels, {}, at::Reduction::None);
          }};
}

Loss categorical_crossentropy(CrossentropyOptions options) {
  return {"categorical_crossentropy", [options](const at::Tensor& y_true, const at::Tensor& y_pred) {
            internal::check_scores(y_pred);
            const at::Tensor wanted = internal::in_shape_of(y_pred, y_true);
            const at::Tensor logs =
                options.from_logits ? y_pred.log_softmax(1) : clipped(y_pred / y_pred.sum(1, true)).log();
            return -(wanted * logs).sum(1);
          }};
}

Loss binary_crossentropy(CrossentropyOptions options) {
  return {"binary_crossentropy", [options](const at::Tensor& y_true, const at::Tensor& y_pred) {
            const at::Tensor wanted = internal::in_shape_of(y_pred, y_true);
            if (options.from_logits) {
              return internal::mean_of_rows(
                  at::binary_cross_entropy_with_logits(y_pred, wanted, {}, {}, at::Reduction::None));
            }
            const at::Tensor p = clipped(y_pred);
            return -internal::mean_of_rows(wanted * p.log() + (1 - wanted) * (1 - p).log());
          }};
}

Loss mean_squared_error() {
  return {"mean_squared_error", [](const at::Tensor& y_true, const at::Tensor& y_pred) {
            return internal::mean_of_rows((y_pred - internal::in_shape_of(y_pred, y_true)).square());
          }};
}

Loss mean_absolute_error() {
  return {"mean_absolute_error", [](const at::Tensor& y_true, const at::Tensor& y_pred) {
            return internal::mean_of_rows((y_pred - internal::in_shape_of(y_pred, y_true)).abs());
          }};
}

}  // namespace losses

at::Tensor compute_average_loss(const at::Tensor& per_example, std::int64_t global_batch_size,
                                const at::Tensor& sample_weight) {
  if (global_batch_size <= 0) {
    throw InvalidArgument(
        fmt::format("global_batch_size is {}: expected the rows of the whole step", global_batch_size));
  }
  return internal::weighted(per_example, sample_weight).sum() / global_batch_size;
}

}  // namespace tandem
