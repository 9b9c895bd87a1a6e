#pragma once

#include <ATen/core/Tensor.h>

namespace tandem::models {

// ReLU6 in place: min(max(x, 0), 6). Unlike at::hardtanh_(), which keeps a copy of x for backward, it needs
// no memory of its own, and it has a backward in bfloat16 on CPUs, where libtorch 1.13 has none. The gradient
// is 0 at 0 and at 6. As of all operations in place, x must not be what an operation before it needs for its
// backward.
at::Tensor relu6_(const at::Tensor& x);

}  // namespace tandem::models
