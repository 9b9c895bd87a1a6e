#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace tandem::internal {

// Tensors in memory and tensors in the safetensors format.

// "F32" for at::kFloat. Throws InvalidArgument, naming the tensor, for a dtype that the format or libtorch
// does not have: F16, BF16, F32, F64, I8, I16, I32, I64, U8 and BOOL are in both.
std::string dtype_name(const std::string& tensor_name, at::ScalarType dtype);
at::ScalarType dtype_from_name(const std::string& tensor_name, std::string_view dtype);

// A tensor to write, which must stay as it is until the write is done: nothing is copied. It must be
// contiguous and on the CPU. Throws InvalidArgument for its dtype.
TensorBytes bytes_of(const std::string& name, const at::Tensor& tensor);

std::vector<TensorBytes> bytes_of_all(const std::map<std::string, at::Tensor>& tensors);

// Room for the values of an entry, on the CPU. Throws InvalidArgument for its dtype.
at::Tensor empty_like_entry(const TensorEntry& entry);

// The memory of a tensor that is contiguous and on the CPU; it must outlive this.
std::span<std::byte> writable_bytes(const at::Tensor& tensor);

}  // namespace tandem::internal
