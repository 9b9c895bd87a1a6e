#pragma once

#include <ATen/core/Tensor.h>

namespace tandem::internal {

// What losses and metrics are given, checked and brought into the form they compute with. All throw
// InvalidArgument for shapes that cannot fit: libtorch would often broadcast them into a number that means
// nothing.

// y_true as class numbers, int64 [rows], for a y_pred of [rows, classes]; [rows, 1] and floating-point
// numbers will do. On the CPU each must name a class; on a GPU looking would stall the stream, and its own
// assertion speaks later.
at::Tensor class_numbers(const at::Tensor& y_true, const at::Tensor& y_pred);

// y_true in the shape and dtype of y_pred; one of them may have an additional last dimension of 1.
at::Tensor in_shape_of(const at::Tensor& y_pred, const at::Tensor& y_true);

// Throws unless y_pred is [rows, classes].
void check_scores(const at::Tensor& y_pred);

// The mean over all but the first dimension: [rows].
at::Tensor mean_of_rows(const at::Tensor& values);

// values x sample_weight, both one number per row; an undefined weight is 1.
at::Tensor weighted(const at::Tensor& values, const at::Tensor& sample_weight);

}  // namespace tandem::internal
