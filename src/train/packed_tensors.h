#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace tandem::internal {

using NamedTensors = std::map<std::string, at::Tensor>;

// Named tensors as one line of bytes that can travel: the safetensors format, in memory. They must be
// contiguous and on the CPU.
at::Tensor pack(const NamedTensors& tensors);

// `whose` begins the message if they are not whole.
NamedTensors unpack(const at::Tensor& line, const std::string& whose);

}  // namespace tandem::internal
