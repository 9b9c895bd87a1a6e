#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem::internal {

// Tensors of any dtype and device as one line of bytes on the CPU, to travel together; each begins at a
// multiple of 64.
at::Tensor to_bytes(const std::vector<at::Tensor>& tensors);

// Views of such a line, in the shapes and dtypes of `like`.
std::vector<at::Tensor> from_bytes(const at::Tensor& bytes, const std::vector<at::Tensor>& like);

}  // namespace tandem::internal
