#include "checkpoint/tensors.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <vector>

#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};

constexpr std::array kDtypes{
    Dtype{"F16", at::kHalf},   Dtype{"BF16", at::kBFloat16}, Dtype{"F32", at::kFloat},
    Dtype{"F64", at::kDouble}, Dtype{"I8", at::kChar},       Dtype{"I16", at::kShort},
    Dtype{"I32", at::kInt},    Dtype{"I64", at::kLong},      Dtype{"U8", at::kByte},
    Dtype{"BOOL", at::kBool},
};

[[noreturn]] void refuse(const std::string& tensor_name, std::string_view dtype) {
  std::vector<std::string_view> names;
  for (const Dtype& known : kDtypes) names.push_back(known.name);
  throw InvalidArgument(fmt::format("tensor {} has dtype {}: expected one of {}", quote(tensor_name), dtype,
                                    fmt::join(names, ", ")));
}

}  // namespace

std::string dtype_name(const std::string& tensor_name, at::ScalarType dtype) {
  const auto found = std::ranges::find(kDtypes, dtype, &Dtype::type);
  if (found == kDtypes.end()) refuse(tensor_name, at::toString(dtype));
  return std::string(found->name);
}

at::ScalarType dtype_from_name(const std::string& tensor_name, std::string_view dtype) {
  const auto found = std::ranges::find(kDtypes, dtype, &Dtype::name);
  if (found == kDtypes.end()) refuse(tensor_name, dtype);
  return found->type;
}

TensorBytes bytes_of(const std::string& name, const at::Tensor& tensor) {
  return {.name = name,
          .dtype = dtype_name(name, tensor.scalar_type()),
          .shape = tensor.sizes().vec(),
          .bytes = writable_bytes(tensor)};
}

std::vector<TensorBytes> bytes_of_all(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<TensorBytes> all;
  for (const auto& [name, tensor] : tensors) all.push_back(bytes_of(name, tensor));
  return all;
}

at::Tensor empty_like_entry(const TensorEntry& entry) {
  return at::empty(entry.shape, dtype_from_name(entry.name, entry.dtype));
}

std::span<std::byte> writable_bytes(const at::Tensor& tensor) {
  assert(tensor.is_contiguous() && tensor.device().is_cpu());
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace tandem::internal
