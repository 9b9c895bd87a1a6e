#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

namespace tandem::internal {

// Tensors as bytes that say themselves what they are: number; dtype and shape of each; then the values of
// all, row-major, without holes. The dtypes are those of checkpoints.

// `what` begins the message of the InvalidArgument for a tensor that cannot travel: one that is undefined,
// sparse, or of another dtype. Values on a GPU are fetched.
std::string encode_values(const std::string& what, const std::vector<at::Tensor>& values);

// Throws InvalidArgument, before anything is allocated for values, unless they are all there, to the byte.
std::vector<at::Tensor> decode_values(const std::string& what, std::string_view bytes);

}  // namespace tandem::internal
