#include "train/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::string shape(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

void check_defined(const at::Tensor& y_true) {
  if (!y_true.defined()) throw InvalidArgument("there is no y_true: the dataset gives no labels");
}

// Whether they differ at most by a last dimension of 1.
bool fit(at::IntArrayRef a, at::IntArrayRef b) {
  const auto without_last_one = [](at::IntArrayRef sizes) {
    return sizes.size() > 1 && sizes.back() == 1 ? sizes.slice(0, sizes.size() - 1) : sizes;
  };
  return without_last_one(a) == without_last_one(b);
}

}  // namespace

void check_scores(const at::Tensor& y_pred) {
  if (y_pred.dim() != 2 || y_pred.size(1) == 0) {
    throw InvalidArgument(fmt::format("y_pred has shape {}: expected [rows, classes]", shape(y_pred)));
  }
}

at::Tensor class_numbers(const at::Tensor& y_true, const at::Tensor& y_pred) {
  check_defined(y_true);
  check_scores(y_pred);
  const std::int64_t rows = y_pred.size(0);
  const std::int64_t classes = y_pred.size(1);
  if (!fit(y_true.sizes(), {rows})) {
    throw InvalidArgument(
        fmt::format("y_true has shape {}: expected one class number per row, [{}], for y_pred of shape {}{}",
                    shape(y_true), rows, shape(y_pred),
                    y_true.sizes() == y_pred.sizes() ? "; one-hot rows go without \"sparse\"" : ""));
  }
  const at::Tensor numbers = y_true.reshape({rows}).to(at::kLong);
  if (rows > 0 && numbers.is_cpu()) {
    const auto [lowest, highest] = at::aminmax(numbers);
    const auto low = lowest.item<std::int64_t>();
    const auto high = highest.item<std::int64_t>();
    if (low < 0 || high >= classes) {
      throw InvalidArgument(
          fmt::format("class number {} in y_true is out of range: y_pred has {} classes (0 to {})",
                      low < 0 ? low : high, classes, classes - 1));
    }
  }
  return numbers;
}

at::Tensor in_shape_of(const at::Tensor& y_pred, const at::Tensor& y_true) {
  check_defined(y_true);
  if (y_pred.dim() == 0 || !fit(y_true.sizes(), y_pred.sizes())) {
    throw InvalidArgument(
        fmt::format("y_true has shape {}, y_pred {}: expected the same, with a batch dimension",
                    shape(y_true), shape(y_pred)));
  }
  return y_true.reshape(y_pred.sizes()).to(y_pred.scalar_type());
}

at::Tensor mean_of_rows(const at::Tensor& values) {
  return values.dim() == 1 ? values : values.flatten(1).mean(1);
}

at::Tensor weighted(const at::Tensor& values, const at::Tensor& sample_weight) {
  if (values.dim() != 1) {
    throw InvalidArgument(fmt::format(
        "expected one value per example, [rows]: got shape {}; leave out the mean or sum over the rows (of "
        "libtorch's losses: torch::kNone), which is then taken over those of all replicas",
        shape(values)));
  }
  return sample_weight.defined() ? values * in_shape_of(values, sample_weight) : values;
}

}  // namespace tandem::internal
